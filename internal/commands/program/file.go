package program

import (
	"fmt"
	"io"
	"os"
)

// StandardOutput is the file name that means standard output.
const StandardOutput = "-"

// maxFile is the largest file that a flag may name, in bytes.
const maxFile = 1 << 20

// ReadFile returns the content of a file that a flag names. It fails if the file has more than 1 MiB.
func ReadFile(flag, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()                                          //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // limited: a device or a pipe does not report its size
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	if len(content) > maxFile {
		return "", fmt.Errorf("%s: %s is longer than %d bytes", flag, file, maxFile)
	}
	return string(content), nil
}
