// Command kms-pkcs11 provides a key of a PKCS#11 token, such as an HSM, as a key-encryption key. It serves the
// Kubernetes KMS v2 protocol on a Unix socket. keyserver-operator uses it with --kek kmsv2://SOCKET; kube-apiserver
// could also use it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var at place
	root := &cobra.Command{
		Use: "kms-pkcs11", Short: "A KMS v2 plugin that wraps by a key on a PKCS#11 token",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&at.library, "library", "", "path of the PKCS#11 library of the token")
	flags.StringVar(&at.token, "token", "", "label of the token")
	flags.StringVar(&at.pinFile, "pin-file", "", "file with the user's PIN of the token")
	flags.StringVar(&at.label, "key", "", "label of the AES key on the token")

	var socket string
	serving := &cobra.Command{
		Use: "serve", Short: "Wrap and unwrap for processes that may open the socket", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(socket) {
				return fmt.Errorf("--listen takes the absolute path of a socket, and not %q", socket)
			}
			t, err := openKey(at)
			if err != nil {
				return err
			}
			p := plugin{t}
			if err := p.try(cmd.Context()); err != nil {
				return fmt.Errorf("the key %q does not wrap by AES-GCM: %w", at.label, err)
			}
			listener, err := listen(cmd.Context(), socket)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrapping by key %x of token %q at %s\n", t.keyID, at.token, socket)
			return p.serve(cmd.Context(), listener)
		},
	}
	serving.Flags().StringVar(&socket, "listen", "", "absolute path of the socket")

	creating := &cobra.Command{
		Use: "create-key", Short: "Make an AES-256 key that never leaves the token", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := createKey(at)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}
	root.AddCommand(serving, creating)
	return root
}
