package server

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Names of files in the data directory.
const (
	passwordFile        = "bootstrap-password"         // generated at the first start
	officerPasswordFile = "bootstrap-officer-password" // generated at the first start of a split deployment
)

// Limits of a bootstrap password file.
const (
	generatedBytes   = 24
	minFirstPassword = 8
	maxFirstPassword = 1024
)

type firstPassword struct {
	flag      string
	given     string // the value of the flag
	dir       string
	file      string // name of the file for a generated password
	random    io.Reader
	generated string // path of the generated password file, set by read
}

func (c *Config) firstPasswords() (admin, officer firstPassword) {
	return firstPassword{flag: "--bootstrap-password-file", given: c.BootstrapPasswordFile, dir: c.DataDir, file: passwordFile, random: rand.Reader},
		firstPassword{flag: "--bootstrap-officer-password-file", given: c.BootstrapOfficerPasswordFile, dir: c.DataDir, file: officerPasswordFile, random: rand.Reader}
}

// read returns the password from the file of the flag. Without the flag, it generates a password and a file for it. The
// file is durable when read returns. If the start is interrupted, the next start uses the same file.
func (f *firstPassword) read() (string, error) {
	if f.given != "" {
		return readPassword(f.flag, f.given)
	}
	f.generated = filepath.Join(f.dir, f.file)
	if _, err := os.Stat(f.generated); err == nil {
		return readPassword("the generated password file", f.generated)
	}
	raw := make([]byte, generatedBytes)
	if _, err := io.ReadFull(f.random, raw); err != nil {
		return "", fmt.Errorf("generate a password: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	if err := writeFile(f.generated, []byte(text+"\n"), privateFile); err != nil {
		return "", fmt.Errorf("write the generated password: %w", err)
	}
	return text, nil
}

func readPassword(what, path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", what, err)
	}
	defer func() { _ = file.Close() }() // opened only for reading
	b, err := io.ReadAll(io.LimitReader(file, maxFirstPassword+3))
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", what, err)
	}
	text := strings.TrimRight(string(b), "\r\n")
	if len(text) < minFirstPassword || len(text) > maxFirstPassword {
		return "", fmt.Errorf("%s %s must contain a password of %d to %d bytes", what, path, minFirstPassword, maxFirstPassword)
	}
	return text, nil
}

// Modes of files that this process creates.
const (
	privateFile os.FileMode = 0o600
	publicFile  os.FileMode = 0o644
)

// writeFile writes a file durably. After an error, the old file is unchanged.
func writeFile(path string, content []byte, mode os.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err = errors.Join(tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
