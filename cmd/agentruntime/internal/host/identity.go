package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Identity names a worker process: what it is called, the data folder it has
// locked (if any), and this start of it.
type Identity struct {
	name, folder, start string
}

// NewIdentity returns the identity of this start. With a data folder, which
// the caller has locked, the folder's own id is part of it: another start with
// the same folder is then known to be over.
func NewIdentity(name, folder string) (Identity, error) {
	id := Identity{name: name, start: rand.Text()}
	if folder == "" {
		return id, nil
	}
	file := filepath.Join(folder, "worker-id")
	data, err := os.ReadFile(file)
	// A start that was killed while it wrote the id has left none.
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(data)) == "" {
		data = []byte(rand.Text())
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return id, fmt.Errorf("read the worker's id: %w", err)
	}
	id.folder = strings.TrimSpace(string(data))
	return id, nil
}

// String returns name/folder/start, as it stands in claims.
func (i Identity) String() string { return i.name + "/" + i.folder + "/" + i.start }

// Gone reports whether a worker is an earlier start with the folder that this
// one has locked: it has ended, however it ended.
func (i Identity) Gone(worker string) bool {
	parts := strings.Split(worker, "/") // a name may have slashes as well
	n := len(parts)
	return n >= 3 && i.folder != "" && parts[n-2] == i.folder && parts[n-1] != i.start
}
