package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxSecret is the largest secret, in bytes.
const maxSecret = 64 << 10

// Secret reads a secret from a file, or asks for it at a terminal without showing it.
func Secret(cmd *cobra.Command, flag, file, question string) (string, error) {
	var text []byte
	var err error
	switch in, _ := cmd.InOrStdin().(*os.File); {
	case file == "-":
		text, err = ReadAll("standard input", cmd.InOrStdin(), maxSecret)
	case file != "":
		var f *os.File
		if f, err = os.Open(file); err != nil {
			break
		}
		defer f.Close() //nolint:errcheck // the file was only read
		text, err = ReadAll(file, f, maxSecret)
	case in == nil || !term.IsTerminal(int(in.Fd())):
		return "", Usagef("%s is missing, and standard input is not a terminal; name a file, or - for standard input", flag)
	default:
		_, _ = io.WriteString(cmd.ErrOrStderr(), question)
		text, err = term.ReadPassword(int(in.Fd()))
		_, _ = io.WriteString(cmd.ErrOrStderr(), "\n")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	said := strings.TrimRight(string(text), "\r\n")
	if said == "" {
		return "", &Failure{ExitUsage, errors.New(flag + ": is empty")}
	}
	return said, nil
}

// ReadAll reads an entire input. It fails if the input has more than limit bytes. name describes the input in errors.
func ReadAll(name string, from io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return content, err
}
