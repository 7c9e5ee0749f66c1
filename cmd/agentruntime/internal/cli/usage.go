package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// What can be seen wrong from the command line alone, its flags, its arguments and
// the files that they name, is a wrong usage: it is refused before anything is sent.

// flagError says what is wrong with a flag, in the words of people.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		f := wrong.GetFlag()
		err = fmt.Errorf("--%s %q: must be %s", f.Name, wrong.GetValue(), valueOf(f))
	}
	return usage(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
}

// valueOf says what a flag takes.
func valueOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 30s or 5m"
	case "uint64":
		return "a whole number, 0 or more"
	case "int", "int64":
		return "a whole number"
	case "stringToString":
		return "key=value"
	}
	return "text"
}

// checkGiven refuses flags that were given without a value. An empty one is a
// mistake, such as a variable that is not set: to take it for a flag that was not
// given would do something else than was meant.
func checkGiven(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		empty := len(values) == 0
		for _, v := range values {
			empty = empty || strings.TrimSpace(v) == ""
		}
		if empty && err == nil {
			err = usage(fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return err
}

// exactly refuses another number of arguments, and empty ones.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage(fmt.Errorf("%s takes %d arguments %v, got %d; see %s --help", cmd.CommandPath(), len(names), names, len(args), cmd.CommandPath()))
		}
		for i, arg := range args {
			if strings.TrimSpace(arg) == "" {
				return usage(fmt.Errorf("%s is empty; see %s --help", names[i], cmd.CommandPath()))
			}
		}
		return nil
	}
}

// helpCommand is the help of any command.
func helpCommand() *cobra.Command {
	return &cobra.Command{Use: "help [command]", Short: "Help about any command", Example: "  agentruntime help run start",
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // it needs no configuration
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage(fmt.Errorf("there is no command %q; see %s --help", strings.Join(args, " "), cmd.Root().CommandPath()))
			}
			at.InitDefaultHelpFlag() // so that it is listed
			return at.Help()
		}}
}

// checkAgent refuses what can be no agent's name. They have the form of a session's.
func checkAgent(what, slug string) error {
	if events.CheckSession(slug) != nil {
		return usage(fmt.Errorf("%s %q can be no agent's name", what, slug))
	}
	return nil
}

// checkTask refuses labels and files that no command takes.
func checkTask(labels map[string]string, files []string) error {
	var wrong *handlers.APIError
	if err := (&handlers.Filter{Label: labels}).Validate(); errors.As(err, &wrong) {
		return usage(fmt.Errorf("--%s", wrong.Message))
	}
	if len(files) > handlers.MaxFiles {
		return usage(fmt.Errorf("--file: a command has at most %d files, not %d", handlers.MaxFiles, len(files)))
	}
	for _, path := range files {
		if err := checkFile(path); err != nil {
			return err
		}
	}
	return nil
}

// checkFolder refuses the name of what is no folder.
func checkFolder(flag, folder string) error {
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return usage(fmt.Errorf("%s %s: there is no such folder", flag, folder))
	case err != nil:
		return usage(fmt.Errorf("%s: %w", flag, err))
	case !info.IsDir():
		return usage(fmt.Errorf("%s %s: it is a file; name the folder", flag, folder))
	}
	return nil
}

// checkSweep refuses a time that serve cannot sweep by. In a configuration 0 stands
// for the default.
func checkSweep(sweep time.Duration) error {
	if sweep < time.Second {
		return usage(fmt.Errorf("--sweep %s: must be at least 1s", sweep))
	}
	return nil
}

// checkAddress refuses what can be no address to listen at.
func checkAddress(what, address, example string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usage(fmt.Errorf("%s %q is no address; write it as %s", what, address, example))
	}
	return nil
}

// checkMetrics is checkAddress for what may be off or left open.
func checkMetrics(address string) error {
	if address == "" || address == "off" {
		return nil
	}
	return checkAddress("the address of the metrics", address, defaultMetrics+", or off")
}
