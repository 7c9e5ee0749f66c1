package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// filePiece is what one request stores of a file, in bytes. In base64 and with
// what is around it, it fits into the least that servers carry by default.
const filePiece = 512 << 10

// registerFiles registers the files of a task or a message.
func registerFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVar(files, "file", nil, "file that goes with it, such as an image, a PDF or text; may be repeated")
}

// give stores files and returns the command with their references.
func (c *client) give(ctx context.Context, payload any, paths []string) (any, error) {
	var given []events.GivenFile
	for _, path := range paths {
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		ref, err := c.store(ctx, data)
		if err != nil {
			return nil, err
		}
		given = append(given, events.GivenFile{Name: filepath.Base(path), Ref: ref})
	}
	switch p := payload.(type) {
	case events.StartRun:
		p.Files = given
		return p, nil
	case events.ContinueRun:
		p.Files = given
		return p, nil
	case events.MessageRun:
		p.Files = given
		return p, nil
	}
	return payload, nil
}

// checkFile refuses a file that can go with no command, without reading it.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return usage(fmt.Errorf("read the file: %w", err))
	case info.IsDir():
		return usage(fmt.Errorf("read the file: %s is a folder", path))
	case info.Mode().IsRegular():
		return checkSize(path, info.Size())
	}
	return nil
}

func checkSize(path string, size int64) error {
	switch {
	case size > handlers.MaxFile:
		return usage(fmt.Errorf("the file %s has more than %d bytes", path, handlers.MaxFile))
	case size == 0:
		return usage(errors.New("the file " + path + " is empty"))
	}
	return nil
}

// readFile reads a file that can go with a command.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage(fmt.Errorf("read the file: %w", err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, handlers.MaxFile+1))
	if err != nil {
		return nil, usage(fmt.Errorf("read the file: %w", err))
	}
	return data, checkSize(path, int64(len(data)))
}

// store stores a file, a larger one in pieces that are put together then.
func (c *client) store(ctx context.Context, data []byte) (string, error) {
	var answer handlers.PutFileAnswer
	var pieces []string
	for at := 0; at < len(data); at += filePiece {
		if err := c.ask(ctx, handlers.VerbFilePut, nil, handlers.PutFile{Data: data[at:min(at+filePiece, len(data))]}, &answer); err != nil {
			return "", err
		}
		pieces = append(pieces, answer.Ref)
	}
	if len(pieces) == 1 {
		return answer.Ref, nil
	}
	err := c.ask(ctx, handlers.VerbFilePut, nil, handlers.PutFile{Pieces: pieces}, &answer)
	return answer.Ref, err
}
