package postgres

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// wantURL ends error messages. It describes the form of a database URL and its percent-encoding.
const wantURL = `use postgres://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode special characters in USER, PASSWORD and parameters (@ as %40, / as %2F, # as %23, ? as %3F, & as %26, % as %25)`

// parameterName matches the names of connection parameters and of settings of PostgreSQL.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// CheckURL rejects a text that is not the URL of a PostgreSQL database. It also rejects an
// ambiguous URL, in which a special character of the password is not percent-encoded. The
// driver could take part of such a password for the host, the database or a parameter, which
// appear in DNS queries, errors and logs. The error repeats no part of the text.
func CheckURL(text string) error {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return errors.New("--database-url must start with postgres:// or postgresql://; omit it for the embedded database")
	}
	u, err := url.Parse(text)
	if err != nil || strings.Contains(text, "#") || !oneUser(u, text) || !parametersNamed(u.RawQuery) {
		return errors.New("--database-url: not the URL of a PostgreSQL database; " + wantURL)
	}
	return nil
}

// oneUser reports whether the text has no @, or exactly one @, which separates user and
// password from the host.
func oneUser(u *url.URL, text string) bool {
	n := strings.Count(text, "@")
	return n == 0 || n == 1 && u.User != nil
}

// parametersNamed reports whether each part of a query is NAME=VALUE.
func parametersNamed(query string) bool {
	for part := range strings.SplitSeq(query, "&") {
		name, value, named := strings.Cut(part, "=")
		if _, err := url.QueryUnescape(value); part != "" && (!named || err != nil || !parameterName.MatchString(name) || strings.Contains(value, ";")) {
			return false
		}
	}
	return true
}
