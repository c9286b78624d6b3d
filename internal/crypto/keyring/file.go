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

// Names in the data directory (ADR 24).
const (
	KeyFile      = "kek" // the key-encryption key
	databaseFile = "keyserver.db"
	// restoringPrefix begins the names of what a restore that was killed has left.
	restoringPrefix = databaseFile + ".restoring"
)

// maxKEKFile bounds what is read of a file that should hold 44 characters.
const maxKEKFile = 1024

// EnsureFileKey answers the URL of the key-encryption key in the data
// directory, and makes the key, and the directory, at the first start. It
// never replaces a key; and where there is a database but no key, it refuses,
// because a new key would open nothing. So it comes before the database is
// made.
func EnsureFileKey(dir string) (string, error) {
	url, err := readFileKey(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return url, err
	}
	switch _, err := os.Lstat(filepath.Join(dir, databaseFile)); {
	case err == nil:
		return "", fmt.Errorf("%s holds a database but not its key-encryption key: put the file %s back, or name the key by --kek", dir, KeyFile)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("look for a database: %w", err)
	}
	if err := makeDirectory(dir); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if err := refuseRestoring(dir); err != nil {
		return "", err
	}
	if err := makeFileKey(dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have been faster
		return "", fmt.Errorf("make the key-encryption key: %w", err)
	}
	return readFileKey(dir)
}

// refuseRestoring leaves a directory as it is in which a restore has to be run again.
func refuseRestoring(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), restoringPrefix) {
			return fmt.Errorf("the restore of a database into %s was interrupted: run it again, or give another directory", dir)
		}
	}
	return nil
}

// FileKey answers the URL of the key-encryption key in the data directory, and
// makes none.
func FileKey(dir string) (string, error) { return readFileKey(dir) }

func makeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err // the umask can only take more away
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
		return "", fmt.Errorf("%s does not hold a key-encryption key: want 32 bytes in base64", path)
	}
	return localsecrets.Scheme + "://" + key, nil
}

// makeFileKey writes the key in full under another name before it gives it its
// own by a link, which never takes the place of a file that is there.
func makeFileKey(dir string) (err error) {
	f, err := os.CreateTemp(dir, KeyFile+".*") // 0600, and a name that no other process has
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

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
