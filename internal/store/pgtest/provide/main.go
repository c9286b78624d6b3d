// Command provide starts a PostgreSQL server for an entire run of tests and prints
// the directory of its socket. hack/provide.sh calls it with the process id of the
// shell that runs the tests. The server ends when that shell ends.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments; want the process id of the shell that runs the tests", len(args))
	}
	owner, err := strconv.Atoi(args[0])
	if err != nil || owner <= 1 {
		return fmt.Errorf("%q is not the process id of a shell", args[0])
	}
	host, err := pgtest.Provide(owner)
	if err != nil {
		return err
	}
	_, err = fmt.Println(host)
	return err
}
