package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Load reads a folder of agents and, unless its name is empty, a folder of
// capabilities. Files that do not end in .yaml or .yml, those that begin with a
// dot, and the scripts of scripted models beside agents, <name>.script.yaml, are
// left alone; a folder without any other gives nothing. The error is everything
// that is wrong, joined; each is an *Error.
func Load(agentsDir, capabilitiesDir string) (*Set, error) {
	return load(func(dir string) folder { return folder{dir: dir, files: os.DirFS(dir)} }, agentsDir, capabilitiesDir)
}

// LoadFS is Load for folders of a file system.
func LoadFS(fsys fs.FS, agentsDir, capabilitiesDir string) (*Set, error) {
	return load(func(dir string) folder {
		files, err := fs.Sub(fsys, dir)
		return folder{dir: dir, files: files, err: err}
	}, agentsDir, capabilitiesDir)
}

func load(open func(dir string) folder, agentsDir, capabilitiesDir string) (*Set, error) {
	set := &Set{sources: make(map[string]*document)}
	agents, errs := open(agentsDir).read("agent")
	for _, d := range agents {
		a := d.readAgent()
		set.Agents = append(set.Agents, a)
		set.sources[a.Slug] = d
		errs = append(errs, d.sorted()...)
	}
	if capabilitiesDir != "" {
		capabilities, failed := open(capabilitiesDir).read("capability")
		errs = append(errs, failed...)
		for _, d := range capabilities {
			set.Capabilities = append(set.Capabilities, d.readCapability())
			errs = append(errs, d.sorted()...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// folder is a folder of files of one kind.
type folder struct {
	dir   string
	files fs.FS
	err   error
}

// read reads every file of the folder. A file that cannot be read is a document
// with an error.
func (f folder) read(kind string) ([]*document, []error) {
	names, err := f.names()
	if err != nil {
		return nil, []error{&Error{File: f.dir, Reason: f.reason(kind, err)}}
	}
	documents := make([]*document, 0, len(names))
	first := make(map[string]string, len(names))
	for _, name := range names {
		if kind == "agent" && strings.HasSuffix(name, ".script.yaml") {
			continue
		}
		d := &document{file: filepath.Join(f.dir, name), name: strings.TrimSuffix(name, path.Ext(name))}
		documents = append(documents, d)
		if earlier, twice := first[d.name]; twice {
			d.whole(0, "there is %s as well: one %s has one file", earlier, kind)
			continue
		}
		first[d.name] = name
		data, err := readFile(f.files, name)
		if err != nil {
			d.whole(0, "cannot be read: %s", cause(err))
			continue
		}
		d.read(data)
	}
	return documents, nil
}

func (f folder) reason(kind string, err error) string {
	switch {
	case f.dir == "":
		return "no folder of " + kind + " files is given: name one"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such folder: create it, or name the one that holds the " + kind + " files"
	}
	return fmt.Sprintf("the folder of %s files cannot be read: %s", kind, cause(err))
}

// names lists the files that count, sorted.
func (f folder) names() ([]string, error) {
	if f.err != nil {
		return nil, f.err
	}
	entries, err := fs.ReadDir(f.files, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		ext := strings.ToLower(path.Ext(e.Name()))
		if (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

var errNoFile = errors.New("it is not a file")

// readFile reads a file and no more of it than is needed to see that it is too
// large. A pipe would never end, and is refused before it is opened.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	return data, errors.Join(err, file.Close())
}
