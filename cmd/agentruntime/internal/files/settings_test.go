package files_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
)

func TestALineIsThatOfTheFieldWhichAPathMeans(t *testing.T) {
	var into struct {
		Key   string                                  `yaml:"key"`
		Keys  []map[string]string                     `yaml:"keys"`
		Names map[string]map[string]map[string]string `yaml:"names"`
	}
	settings, err := files.ReadSettings("a.yaml", []byte(`key: x
keys:
  - id: a
  - id: b
    text: c
names:
  desk:
    other: {x: y}
    book: {}
  desk.book:
    day:
      x: y
  room.list: {}
  room:
    list: {}
`), &into)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"key":                   1,
		"keys":                  2,
		"keys[0].id":            3,
		"keys[1]":               4,
		"keys[1].text":          5,
		"keys[1].none":          4,
		"keys[2]":               2,
		"keyed":                 0, // a name that begins like another is another
		"none":                  0,
		"names.desk":            7,
		"names.desk.other.x":    8,
		"names.desk.book.day.x": 12, // the name with a dot leads further than the first one
		"names.desk.book.none":  9,  // of those that lead as far, the first one
		"names.room.list.none":  13,
		"names.rooms":           6,
	} {
		if line := settings.Line(path); line != want {
			t.Errorf("%s is in line %d, want %d", path, line, want)
		}
	}
}
