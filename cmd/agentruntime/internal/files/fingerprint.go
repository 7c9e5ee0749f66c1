package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Fingerprint returns a text that changes when a file that Load could read is
// added, removed, written or replaced. It reads names, sizes and times, no
// contents; a write within the file system's clock tick that keeps the size can
// escape it. Empty names are left out.
func Fingerprint(dirs ...string) (string, error) {
	hash := sha256.New()
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		f := folder{dir: dir, files: os.DirFS(dir)}
		names, err := f.names()
		if err != nil {
			return "", fmt.Errorf("look for changes in %s: %w", dir, err)
		}
		fmt.Fprintf(hash, "folder %q\n", dir)
		for _, name := range names {
			info, err := fs.Stat(f.files, name)
			switch {
			case errors.Is(err, fs.ErrNotExist): // removed meanwhile, or a link to nothing
				fmt.Fprintf(hash, "%q\n", name)
			case err != nil:
				return "", fmt.Errorf("look for changes in %s: %w", dir, err)
			default:
				fmt.Fprintf(hash, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
