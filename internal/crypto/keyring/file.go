package keyring

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/secrets/localsecrets"
)

// Names of files in the data directory (ADR 24).
const (
	KeyFile      = "kek" // the key-encryption key
	databaseFile = "keyserver.db"
	// restoringPrefix is the name prefix of the files that a restore leaves if it is killed.
	restoringPrefix = databaseFile + ".restoring"
)

// maxKEKFile is the maximum number of bytes that are read from a key file. A valid file has 44 characters.
const maxKEKFile = 1024

// EnsureFileKey returns the URL of the key-encryption key in the data directory. At the first start it creates the key
// and the directory. It never replaces a key. If there is a database but no key, it fails, because a new key could not
// open the data keys. Call EnsureFileKey before the database is created.
func EnsureFileKey(dir string) (string, error) {
	url, err := readFileKey(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return url, err
	}
	switch _, err := os.Lstat(filepath.Join(dir, databaseFile)); {
	case err == nil:
		return "", fmt.Errorf("%s has a database but not its key-encryption key; restore the file %s, or name the key with --kek", dir, KeyFile)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("look for a database: %w", err)
	}
	if err := makeDirectory(dir); err != nil {
		return "", fmt.Errorf("create the data directory: %w", err)
	}
	if err := refuseRestoring(dir); err != nil {
		return "", err
	}
	if err := makeFileKey(dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have created it
		return "", fmt.Errorf("create the key-encryption key: %w", err)
	}
	return readFileKey(dir)
}

// refuseRestoring fails if a restore into the directory was interrupted, because that restore must be run again.
func refuseRestoring(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), restoringPrefix) {
			return fmt.Errorf("the restore of a database into %s was interrupted; run it again, or name another directory", dir)
		}
	}
	return nil
}

// FileKey returns the URL of the key-encryption key in the data directory. It does not create a key.
func FileKey(dir string) (string, error) { return readFileKey(dir) }

func makeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err // the umask can only remove permissions, not add any
}

func readFileKey(dir string) (string, error) {
	path := filepath.Join(dir, KeyFile)
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the key-encryption key: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxKEKFile))
	defer clear(text)
	if err != nil {
		return "", fmt.Errorf("read the key-encryption key: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if _, err := openLocal(key); err != nil {
		return "", fmt.Errorf("%s is not a key-encryption key; it must be 32 bytes in base64", path)
	}
	return localsecrets.Scheme + "://" + key, nil
}

// makeFileKey writes the complete key to a temporary file and then creates a hard link with the final name. A hard link
// never replaces an existing file.
func makeFileKey(dir string) (err error) {
	f, err := os.CreateTemp(dir, KeyFile+".*") // mode 0600, and a unique name
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	key := newKey()
	defer clear(key)
	_, err = f.WriteString(base64.URLEncoding.EncodeToString(key) + "\n")
	if err := errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), filepath.Join(dir, KeyFile)); err != nil {
		return err
	}
	return syncDirectory(dir)
}

// syncDirectory makes the entries of a directory durable.
func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
