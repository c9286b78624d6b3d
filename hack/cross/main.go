// Command cross checks the types of packages and of their tests for another platform, like a compiler for that
// platform. It parses imported packages without the bodies of functions, and compiles nothing. In contrast, "go vet"
// needs export data, so it compiles every import.
//
//	cross GOOS/GOARCH PACKAGE...
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cross GOOS/GOARCH PACKAGE...")
		os.Exit(2)
	}
	if err := check(".", os.Args[1], os.Args[2:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check checks the types of packages in dir for a platform (GOOS/GOARCH), and returns the errors, one per line.
func check(dir, platform string, patterns ...string) error {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("platform: %q has no slash; use GOOS/GOARCH", platform)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	root += string(filepath.Separator)
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedModule | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes,
		Tests: true,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, root) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return err
	}
	var rejected []error
	said := map[string]bool{} // a package is checked a second time with its tests
	packages.Visit(found, nil, func(p *packages.Package) {
		own := p.Module != nil && p.Module.Main && !strings.HasSuffix(p.PkgPath, ".test") // packages whose path ends in .test are generated
		for _, e := range p.Errors {
			// In packages that were parsed without function bodies, imports are unused.
			if text := e.Error(); (own || e.Kind != packages.TypeError) && !said[text] {
				said[text] = true
				rejected = append(rejected, errors.New(strings.TrimPrefix(text, root)))
			}
		}
	})
	return errors.Join(rejected...)
}

func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
