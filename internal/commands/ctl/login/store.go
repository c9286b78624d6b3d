package login

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zalando/go-keyring"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// place has the URL of a key server and the settings of connections to it.
type place struct {
	Server      string `json:"server"`
	CAFile      string `json:"caFile,omitzero"`
	ExternalURL string `json:"externalUrl,omitzero"`
}

// settings is the file of contexts. It has no secrets.
type settings struct {
	Current  string           `json:"current"`
	Contexts map[string]place `json:"contexts"`
}

// session is the stored part of a login. It gives no access without its bound key, which is stored separately.
type session struct {
	Server      string    `json:"server"` // the session is only sent to this server
	SessionID   string    `json:"sessionId"`
	ID          string    `json:"id"` // public id
	Principal   string    `json:"principal"`
	Method      string    `json:"method"`
	ExpiresAt   time.Time `json:"expiresAt"`
	KeyIn       string    `json:"keyIn"`
	Certificate string    `json:"certificate,omitzero"` // paths of the client certificate and its key, if the session is bound to them
	Key         string    `json:"key,omitzero"`
}

// Values that say where a key is stored.
const (
	inFile    = "file"
	inKeyring = "keyring"
)

// store has the directories of a user's files.
type store struct {
	config  string // directory of the settings
	state   string // directory of the sessions
	runtime string // directory of the keys: in memory if the system has such a directory
}

const (
	directory = "keyserver-operator"
	// maxFile limits the size of each file, in bytes.
	maxFile = 1 << 20
	// service names the entries in the desktop's keyring.
	service = "keyserver-operator ctl"
)

// newStore returns the directories of the XDG Base Directory Specification. As the specification requires, it ignores
// paths that are not absolute.
func newStore(getenv func(string) string) (*store, error) {
	home := getenv(homeVariable)
	at := func(variable string, below ...string) string {
		if dir := getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, directory)
		}
		if home == "" || below == nil {
			return ""
		}
		return filepath.Join(home, filepath.Join(below...), directory)
	}
	s := &store{config: at("XDG_CONFIG_HOME", ".config"), state: at("XDG_STATE_HOME", ".local", "state"), runtime: at("XDG_RUNTIME_DIR")}
	if s.config == "" || s.state == "" {
		return nil, cmdline.Usagef("%s is not set, so there is no directory for a session; set it, or both XDG_CONFIG_HOME and XDG_STATE_HOME", homeVariable)
	}
	if s.runtime == "" {
		s.runtime = s.state
	}
	return s, nil
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkContext(name string) error {
	if !contextName.MatchString(name) {
		return cmdline.Usagef("--context is %q; it must have at most 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit", name)
	}
	return nil
}

func (s *store) settingsFile() string               { return filepath.Join(s.config, "ctl.json") }
func (s *store) sessionFile(name string) string     { return filepath.Join(s.state, name+".session") }
func (s *store) keyFile(name string) string         { return filepath.Join(s.runtime, name+".key") }
func (s *store) entry(name string) (string, string) { return service, name }

// settings returns the settings. If there is no file, they are empty.
func (s *store) settings() (settings, error) {
	var out settings
	content, err := readFile(s.settingsFile(), false)
	if errors.Is(err, fs.ErrNotExist) {
		return settings{Contexts: map[string]place{}}, nil
	}
	if err == nil {
		err = parse(s.settingsFile(), content, &out)
	}
	if out.Contexts == nil {
		out.Contexts = map[string]place{}
	}
	return out, err
}

// withLock runs do while no other process can change the user's files.
func (s *store) withLock(do func() error) (err error) {
	if err := os.MkdirAll(s.config, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.config, "ctl.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // closing releases the lock
	if err := lockFile(lock); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return do()
}

// change changes the stored settings. Call it only within withLock.
func (s *store) change(how func(all *settings)) error {
	all, err := s.settings()
	if err != nil {
		return err
	}
	how(&all)
	return save(s.settingsFile(), all)
}

// session returns the stored session of a context, or nil.
func (s *store) session(name string) (*session, error) {
	var out session
	content, err := readFile(s.sessionFile(name), true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // having no session is no error
	}
	if err == nil {
		err = parse(s.sessionFile(name), content, &out)
	}
	return &out, err
}

// keep stores a session and its key. The key is stored first, so that no stored session lacks its key.
func (s *store) keep(name string, what session, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if what.KeyIn == inKeyring {
		service, user := s.entry(name)
		if err := keyring.Set(service, user, string(text)); err != nil {
			return noKeyring(err)
		}
		_ = os.Remove(s.keyFile(name)) // the key of the previous session
	} else if err := write(s.keyFile(name), text); err != nil {
		return err
	}
	return save(s.sessionFile(name), what)
}

func noKeyring(err error) error {
	return &cmdline.Failure{Code: cmdline.ExitFailed, Err: fmt.Errorf("the keyring of this desktop cannot be used: %w; log in with --key-store file to store the key in a file", err)}
}

// key returns the key of a session.
func (s *store) key(name string, of *session) (crypto.Signer, error) {
	var text []byte
	var err error
	if of.KeyIn == inKeyring {
		service, user := s.entry(name)
		var found string
		if found, err = keyring.Get(service, user); err != nil && !errors.Is(err, keyring.ErrNotFound) {
			return nil, noKeyring(err)
		}
		text = []byte(found)
	} else {
		text, err = readFile(s.keyFile(name), true)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, keyring.ErrNotFound) {
		return nil, &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("the session of context %q is bound to a key that no longer exists here; log in again: keyserverctl login", name)}
	}
	if err != nil {
		return nil, err
	}
	der, err := certtext.One(text, "PRIVATE KEY")
	if err != nil {
		return nil, fmt.Errorf("the key of context %q %w", name, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("the key of context %q: %w", name, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of context %q cannot sign", name)
	}
	return key, nil
}

// forget removes a session and its key.
func (s *store) forget(name string) error {
	held, err := s.session(name)
	if err == nil && held != nil && held.KeyIn == inKeyring {
		service, user := s.entry(name)
		if err := keyring.Delete(service, user); err != nil && !errors.Is(err, keyring.ErrNotFound) {
			return fmt.Errorf("the keyring of this desktop cannot be used: %w; unlock it, and try again", err)
		}
	}
	for _, file := range []string{s.sessionFile(name), s.keyFile(name)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openStore returns the store and its settings.
func openStore() (*store, settings, error) {
	s, err := newStore(os.Getenv)
	if err != nil {
		return nil, settings{}, err
	}
	all, err := s.settings()
	return s, all, err
}

func (s settings) names() []string { return slices.Sorted(maps.Keys(s.Contexts)) }

// readFile reads a file of this package. If the file is secret and other users have access, it fails, because they may
// already know the secret.
func readFile(name string, secret bool) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the file was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if secret && othersMayRead(info) {
		return nil, fmt.Errorf("%s: other users can read this file (mode %04o); change its mode to 0600, log out, and log in again", name, info.Mode().Perm())
	}
	return cmdline.ReadAll(name, f, maxFile)
}

func parse(name string, content []byte, out any) error {
	if json.Unmarshal(content, out) != nil { // the decoder's error may quote the content
		return fmt.Errorf("%s: this program did not write this content; delete the file and log in again", name)
	}
	return nil
}

func save(name string, what any) error {
	content, err := json.Marshal(what, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		return err
	}
	return write(name, append(content, '\n'))
}

// write replaces a file atomically, with access only for the user.
func write(name string, content []byte) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".ctl-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
