package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// patience is the time limit of a block of commands. Only a command that hangs takes that long.
const patience = 5 * time.Minute

type cluster struct {
	config     *rest.Config
	kubeconfig string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	environment := controlplane.Start(t)
	config := environment.Config
	config.QPS = -1
	c := &cluster{config, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(c.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// shell runs commands like a reader, with kubectl in the path. It stops at the first error.
func (c *cluster) shell(t *testing.T, directory, commands string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = directory
	programs := t.TempDir()
	if err := os.Symlink(built.Path, filepath.Join(programs, "keyserver-operator")); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+directory,
		"PATH="+programs+":"+filepath.Dir(controlplane.Kubectl(t))+":"+os.Getenv("PATH"))
	out, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		t.Fatal(err)
	}
	// The output is a file and not a pipe, because background processes inherit it.
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err = cmd.Start(); err == nil {
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }) // all processes may have ended
		err = cmd.Wait()
	}
	text, readErr := os.ReadFile(out.Name())
	return string(text), errors.Join(err, readErr, out.Close())
}
