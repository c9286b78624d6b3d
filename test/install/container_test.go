package install

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// accountID is the user and group of imageUser.
const accountID = 65532

// image is the image of "make image-ko", built once for all tests: the layout, its archive, and the
// root file system of its layers.
type image struct {
	dir        string // has layout, layout.tar and root
	entrypoint string
	env        []string
}

const imageName = "registry.example/keyserver-operator:v0.1.0"

func (i image) layout() string  { return filepath.Join(i.dir, "layout") }
func (i image) archive() string { return i.layout() + ".tar" }
func (i image) root() string    { return filepath.Join(i.dir, "root") }

// program returns the path of the image's program on this machine.
func (i image) program() string { return filepath.Join(i.root(), i.entrypoint) }

// scratch is the directory of the image. TestMain creates and removes it.
var scratch string

var theImage = sync.OnceValues(func() (image, error) {
	i := image{dir: scratch, entrypoint: "/ko-app/keyserver-operator"}
	if err := program.DependOnSources(); err != nil {
		return i, err
	}
	if out, err := exec.Command("../../hack/console.sh").CombinedOutput(); err != nil { // as "make image-ko" does
		return i, fmt.Errorf("build the console: %w\n%s", err, out)
	}
	// Two concurrent builds, as in two terminals: one build waits for the other.
	var first, second bytes.Buffer
	err := runBoth(&first, &second, "-out", i.layout(), "-name", imageName)
	said := first.String() + second.String()
	if err == nil && strings.Count(said, "waiting for another run") != 1 {
		err = errors.New("neither run waited for the other")
	}
	if err != nil {
		return i, fmt.Errorf("build the image: %w\n%s", err, said)
	}
	return i, nil
})

// runBoth builds an image in two processes.
func runBoth(first, second *bytes.Buffer, arguments ...string) error {
	var failed [2]error
	var both sync.WaitGroup
	for n, out := range []*bytes.Buffer{first, second} {
		both.Go(func() {
			cmd := imageCommand(arguments...)
			cmd.Stdout, cmd.Stderr = out, out
			failed[n] = cmd.Run()
		})
	}
	both.Wait()
	return errors.Join(failed[:]...)
}

// imageCommand runs hack/image as "make image-ko" does, so that the build cache is shared. The
// image is the same with and without Git.
func imageCommand(arguments ...string) *exec.Cmd {
	cmd := exec.Command("go", append([]string{"run", "-C", "../../hack/image", "."}, arguments...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -buildvcs=false")
	return cmd
}

// imageBuilt returns the image with its root file system.
func imageBuilt(t *testing.T) image {
	t.Helper()
	i, err := theImage()
	if err != nil {
		t.Fatal(err)
	}
	config, files := readImage(t, i.layout())
	i.env = config.Config.Env
	if _, err := os.Stat(i.root()); errors.Is(err, os.ErrNotExist) {
		unpack(t, i.root(), files)
	}
	return i
}

func unpack(t *testing.T, to string, files map[string]imageFile) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		path := filepath.Join(to, filepath.FromSlash(name))
		switch f.Typeflag {
		case tar.TypeDir:
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		case tar.TypeReg:
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.content, 0o600)); err != nil {
				t.Fatal(err)
			}
		default:
			continue // links of ko to its data
		}
		if err := os.Chmod(path, f.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
		own(t, path, f.Uid, f.Gid)
	}
}

// own changes the owner of a file if the test runs as root.
func own(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// container describes a process as a node runs it. It has a read-only root file system with only the image and the
// volumes, another user, and a separate environment. It shares only the network with this machine.
type container struct {
	Root   string
	Mounts []mount
	Env    []string
	Path   string
	Args   []string
	// User and Group are the ids of the process. User 0 means the image's user. Group 0 means the image's group, if
	// User is 0.
	User, Group int
}

type mount struct {
	From, At string
	ReadOnly bool
}

// containerVariable makes a process of this test binary enter a container, if it is set.
const containerVariable = "INSTALL_TEST_CONTAINER"

// start starts the command of a container.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) {
		t.Fatal("a mount namespace is needed: be root with CAP_SYS_ADMIN, or let users make user namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// command returns the command of the container. It is not started.
func (c container) command(t *testing.T) *exec.Cmd {
	t.Helper()
	about, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Mounts {
		if err := os.MkdirAll(filepath.Join(c.Root, m.At), 0o755); err != nil { // nodes create mount points
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{containerVariable + "=" + string(about)}
	cmd.SysProcAttr = ownMounts()
	return cmd
}
