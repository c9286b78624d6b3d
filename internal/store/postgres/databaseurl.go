package postgres

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// wantURL is the form of a database URL, and how to write what does not fit into it.
const wantURL = `use postgres://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode special characters in USER, PASSWORD and parameters (@ as %40, / as %2F, # as %23, ? as %3F, & as %26, % as %25)`

// parameterName matches the names of connection parameters and of settings of PostgreSQL.
var parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// CheckURL rejects a text that is not the URL of a PostgreSQL database, and one that has
// several readings because a special character of the password is not percent-encoded.
// The driver would take parts of such a password for the host, the database or a parameter,
// and these appear in DNS queries, errors and logs. The error repeats no part of the text.
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

// oneUser reports whether the only @ of the text, if there is one, ends the user and the
// password.
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
