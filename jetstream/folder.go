package jetstream

import (
	"errors"
	"os"
	"path/filepath"
)

var errLocked = errors.New("the folder is locked")

// LockFolder makes the folder, checks that it can be written and takes it for
// this process: two servers on the same files destroy them. The lock ends when
// the file is closed or the process ends, however it ends.
func LockFolder(folder string) (*os.File, error) {
	if folder == "" {
		return nil, &FolderError{Folder: `""`, Err: errors.New("no folder is configured")}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, &FolderError{folder, err}
	}
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &FolderError{folder, err}
	}
	if err := lockFile(f); err != nil {
		return nil, &FolderError{folder, errors.Join(err, f.Close())}
	}
	return f, nil
}
