package commands

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/server/admission"
)

func newRelease() *cobra.Command {
	return program.Group("release", "Sign the builds that may serve: keys and manifests for serve --admission required",
		newReleaseKeygen(), newReleaseSign(), newReleaseVerify())
}

func newReleaseKeygen() *cobra.Command {
	var key, pub string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Create a release key; an existing file is never replaced",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := program.RequireFlags(cmd, "key", "pub"); err != nil {
				return err
			}
			return releaseKeygen(key, pub, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "new file for the private key (PEM, PKCS#8); keep it where releases are signed; - is standard output")
	cmd.Flags().StringVar(&pub, "pub", "", "new file for the public key (PEM, PKIX), for serve --release-key; - is standard output")
	return cmd
}

func releaseKeygen(key, pub string, out, notes io.Writer) error {
	private, public, err := admission.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	defer clear(private)
	write := func(path string, content []byte, mode os.FileMode) error {
		if path != program.StandardOutput {
			return writeNew(path, content, mode)
		}
		_, err := out.Write(content)
		return err
	}
	if err := write(key, private, 0o600); err != nil {
		return err
	}
	if err := write(pub, public, 0o644); err != nil {
		if key != program.StandardOutput {
			err = errors.Join(err, os.Remove(key)) // an existing key file would make the next attempt fail
		}
		return err
	}
	if key == program.StandardOutput || pub == program.StandardOutput {
		out = notes
	}
	_, err = fmt.Fprintf(out, "release key in %s, its public key in %s\n", key, pub)
	return err
}

// signOptions are the flags of release sign.
type signOptions struct {
	key, out            string
	binaries            []string
	notBefore, notAfter string
}

func newReleaseSign() *cobra.Command {
	var o signOptions
	cmd := &cobra.Command{
		Use:   "sign",
		Short: "Sign a release manifest of one or more binaries",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := program.RequireFlags(cmd, "key", "binary", "not-before", "not-after", "out"); err != nil {
				return err
			}
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.key, "key", "", "file of the release key (PEM, PKCS#8)")
	cmd.Flags().StringArrayVar(&o.binaries, "binary", nil, "binary to admit; may be given several times, once for each platform")
	cmd.Flags().StringVar(&o.notBefore, "not-before", "", "start of the manifest's validity, for instance 2026-01-31T00:00:00Z")
	cmd.Flags().StringVar(&o.notAfter, "not-after", "", "end of the manifest's validity, in the same format")
	cmd.Flags().StringVar(&o.out, "out", "", "file of the manifest; an existing file is replaced atomically; - is standard output")
	return cmd
}

func (o signOptions) run(out, notes io.Writer) error {
	var m admission.Manifest
	var err error
	if m.NotBefore, err = instant("--not-before", o.notBefore); err != nil {
		return err
	}
	if m.NotAfter, err = instant("--not-after", o.notAfter); err != nil {
		return err
	}
	if !m.NotAfter.After(m.NotBefore) {
		return program.Usagef("--not-after %s must be later than --not-before %s", o.notAfter, o.notBefore)
	}
	key, err := admission.ReadPrivateKey(o.key)
	if err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	defer clear(key)
	if m.Digests, err = digests(o.binaries); err != nil {
		return err
	}
	envelope, err := admission.Sign(key, m)
	if err != nil {
		return err
	}
	if o.out == program.StandardOutput {
		_, err = out.Write(envelope)
		out = notes
	} else {
		err = replace(o.out, envelope)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(out, "signed %s\n%s\n", o.out, strings.Join(m.Digests, "\n"))
	return err
}

func newReleaseVerify() *cobra.Command {
	var pub, manifest string
	var binaries []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that a release manifest admits binaries now, as serve does",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := program.RequireFlags(cmd, "pub", "manifest", "binary"); err != nil {
				return err
			}
			return releaseVerify(pub, manifest, binaries, time.Now(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&pub, "pub", "", "file of the public key (PEM, PKIX)")
	cmd.Flags().StringVar(&manifest, "manifest", "", "file of the manifest")
	cmd.Flags().StringArrayVar(&binaries, "binary", nil, "binary to look for in the manifest; may be given several times")
	return cmd
}

func releaseVerify(pub, manifest string, binaries []string, now time.Time, out io.Writer) error {
	key, err := admission.ReadPublicKey(pub)
	if err != nil {
		return fmt.Errorf("--pub: %w", err)
	}
	sums, err := digests(binaries)
	if err != nil {
		return err
	}
	envelope, err := admission.Read(manifest)
	if err != nil {
		return err
	}
	m, err := admission.Verify(key, envelope)
	if err != nil {
		return err
	}
	for i, digest := range sums {
		if err := m.Admits(digest, now); err != nil {
			return fmt.Errorf("%s: %w", binaries[i], err)
		}
	}
	_, err = fmt.Fprintf(out, "admitted until %s\n%s\n", m.NotAfter.UTC().Format(time.RFC3339), strings.Join(sums, "\n"))
	return err
}

func instant(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, program.Usagef("%s is %q; it must be an RFC 3339 time, for instance 2026-01-31T00:00:00Z", flag, text)
	}
	return t, nil
}

func digests(binaries []string) ([]string, error) {
	sums := make([]string, len(binaries))
	for i, path := range binaries {
		var err error
		if sums[i], err = admission.Digest(path); err != nil {
			return nil, fmt.Errorf("--binary: %w", err)
		}
	}
	return sums, nil
}

// writeNew creates a file and syncs it to disk. It fails if the file exists. After an error it removes the new file.
func writeNew(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already; remove it or choose another name", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// replace writes a file with mode 0644 atomically: a concurrent reader sees either the old or the new content.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
