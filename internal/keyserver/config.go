package keyserver

import (
	"log/slog"
	"slices"
	"strings"
)

// ConfigRoot is the path of the whole configuration.
const ConfigRoot = "ROOT"

// ConfigNode is one element of a key server's configuration as it is, secrets
// included. Only what ProjectConfig makes of it may leave.
type ConfigNode struct {
	Tag      string
	Attrs    map[string]string
	Text     string // never projected
	Children []ConfigNode
}

// String hides what the node holds from every formatting verb.
func (n ConfigNode) String() string { return "configuration of " + n.Tag }

// GoString hides what the node holds from %#v.
func (n ConfigNode) GoString() string { return n.String() }

// LogValue hides what the node holds from structured logs.
func (n ConfigNode) LogValue() slog.Value { return slog.StringValue(n.String()) }

// AllowedTag is a row of the table of what may leave.
type AllowedTag struct {
	Tag string
	// Identity is the attribute that tells siblings of this tag apart; empty
	// where there is one of it.
	Identity string
	// Attributes may leave, Identity among them.
	Attributes []string
}

// ConfigAllowList is the whole table. A tag that is not in it is dropped with
// everything below it, an attribute that is not is dropped by itself.
var ConfigAllowList = []AllowedTag{
	{Tag: "ROOT"},
	{Tag: "KeyServer", Attributes: []string{"systemId", "serverName", "deployment", "breakGlass", "externalUrl", "trustedProxies"}},
	{Tag: "Listeners"},
	{Tag: "Listener", Identity: "name", Attributes: []string{"name", "address", "tls", "minVersion", "clientCertificates"}},
	{Tag: "IdentityProviders"},
	{Tag: "Tokens", Attributes: []string{"issuer", "audiences", "verifiedBy"}},
	{Tag: "Directory", Attributes: []string{"url", "entryBy"}},
	{Tag: "Certificate", Attributes: []string{"source"}},
	{Tag: "Database", Attributes: []string{"kind"}},
	{Tag: "KeyEncryptionKey", Attributes: []string{"scheme"}},
	{Tag: "Cryptography", Attributes: []string{"fips140", "module"}},
	{Tag: "Peers", Attributes: []string{"timeoutSeconds"}},
	{Tag: "Sessions", Attributes: []string{"idleSeconds", "lifetimeSeconds", "scopedLifetimeSeconds", "most", "mostPerPrincipal", "mostDerived", "mostRequests", "requireProof"}},
	{Tag: "Limits", Attributes: []string{"messageBytes", "unwindowedListing", "aclTemplates", "templateMembers", "templatedDirectories", "trustedServers",
		"requests", "waiting", "streams", "connections", "connectionsPerAddress", "strangers", "strangersPerAddress", "proofs", "logins",
		"spoolBytes", "spoolBytesPerSession"}},
}

func allowedTag(tag string) (AllowedTag, bool) {
	for _, a := range ConfigAllowList {
		if a.Tag == tag {
			return a, true
		}
	}
	return AllowedTag{}, false
}

// ConfigStep is one step of a path: a tag and, where Attr is not empty, what
// one of its attributes must be.
type ConfigStep struct{ Tag, Attr, Value string }

// ConfigPath leads from the root to nodes. The empty path is the root.
type ConfigPath []ConfigStep

// Bounds of a path.
const (
	MaxConfigPath  = 1024 // bytes
	maxConfigSteps = 32
)

// ParseConfigPath reads ROOT, or steps separated by dots, each a tag or
// Tag[@attr=value]. A value runs to the closing bracket, so that it may have
// dots. It reports false for everything else: the empty text and a leading
// slash are neither the root nor a wildcard.
func ParseConfigPath(text string) (ConfigPath, bool) {
	if text == ConfigRoot {
		return ConfigPath{}, true
	}
	if text == "" || len(text) > MaxConfigPath {
		return nil, false
	}
	var path ConfigPath
	for rest := text; ; {
		step, after, ok := parseConfigStep(rest)
		if !ok || len(path) == maxConfigSteps {
			return nil, false
		}
		path = append(path, step)
		if after == "" {
			return path, true
		}
		if after[0] != '.' {
			return nil, false
		}
		rest = after[1:]
	}
}

func parseConfigStep(text string) (step ConfigStep, rest string, ok bool) {
	step.Tag, rest = configName(text)
	if step.Tag == "" {
		return step, rest, false
	}
	predicate, found := strings.CutPrefix(rest, "[@")
	if !found {
		return step, rest, true
	}
	step.Attr, rest = configName(predicate)
	value, found := strings.CutPrefix(rest, "=")
	if !found || step.Attr == "" {
		return step, rest, false
	}
	step.Value, rest, ok = strings.Cut(value, "]")
	return step, rest, ok
}

// configName cuts a name, letters and digits that start with a letter, off text.
func configName(text string) (name, rest string) {
	end := 0
	for end < len(text) && (isLetter(text[end]) || end > 0 && (isDigit(text[end]) || text[end] == '_' || text[end] == '-')) {
		end++
	}
	return text[:end], text[end:]
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// ProjectedNode is what may leave of a node.
type ProjectedNode struct {
	Tag   string
	XPath string // ParseConfigPath reads it
	Attrs map[string]string
}

// ConfigProjection is what may leave of the subtrees that a path names.
type ConfigProjection struct {
	Nodes []ProjectedNode
	// Suppressed counts the nodes of the subtrees that were dropped because
	// their tag, or one above them, is not allowed.
	Suppressed int
}

// ProjectConfig follows a path from the root and filters what it names, in
// document order. It reports false where the path names nothing. It is pure.
//
// A step's attribute has to be one that may leave: otherwise asking for a path
// would be a way to guess, character by character, what a secret attribute is.
func ProjectConfig(root ConfigNode, path ConfigPath) (ConfigProjection, bool) {
	at := []located{locate(root, ConfigRoot, true)}
	for _, step := range path {
		var next []located
		for _, parent := range at {
			for _, child := range parent.children() {
				if step.names(child) {
					next = append(next, child)
				}
			}
		}
		at = next
	}
	p := ConfigProjection{Nodes: []ProjectedNode{}}
	for _, l := range at {
		p.add(l)
	}
	return p, len(at) > 0
}

// located is a node with its place in the tree.
type located struct {
	node    ConfigNode
	xpath   string
	allowed *AllowedTag // nil where the node or one above it may not leave
}

func locate(n ConfigNode, xpath string, above bool) located {
	l := located{node: n, xpath: xpath}
	if row, ok := allowedTag(n.Tag); ok && above {
		l.allowed = &row
	}
	return l
}

func (l located) children() []located {
	list := make([]located, len(l.node.Children))
	for i, child := range l.node.Children {
		xpath := child.Tag
		row, _ := allowedTag(child.Tag)
		if value, held := child.Attrs[row.Identity]; held && row.Identity != "" && !strings.Contains(value, "]") {
			xpath += "[@" + row.Identity + "=" + value + "]"
		}
		if l.xpath != ConfigRoot {
			xpath = l.xpath + "." + xpath
		}
		list[i] = locate(child, xpath, l.allowed != nil)
	}
	return list
}

// names reports whether the step leads to the node.
func (s ConfigStep) names(l located) bool {
	if s.Tag != l.node.Tag {
		return false
	}
	if s.Attr == "" {
		return true
	}
	value, held := l.node.Attrs[s.Attr]
	return l.allowed != nil && slices.Contains(l.allowed.Attributes, s.Attr) && held && value == s.Value
}

func (p *ConfigProjection) add(l located) {
	if l.allowed == nil {
		p.Suppressed++
	} else {
		attrs := map[string]string{}
		for _, name := range l.allowed.Attributes {
			if value, held := l.node.Attrs[name]; held {
				attrs[name] = value
			}
		}
		p.Nodes = append(p.Nodes, ProjectedNode{Tag: l.node.Tag, XPath: l.xpath, Attrs: attrs})
	}
	for _, child := range l.children() {
		p.add(child)
	}
}
