package keyserver

import (
	"log/slog"
	"slices"
	"strings"
)

// ConfigRoot is the path of the complete configuration.
const ConfigRoot = "ROOT"

// ConfigNode is one element of a key server's configuration, secrets included. Send only
// the result of ProjectConfig to clients.
type ConfigNode struct {
	Tag      string
	Attrs    map[string]string
	Text     string // never sent
	Children []ConfigNode
}

// String hides the content of the node from every formatting verb.
func (n ConfigNode) String() string { return "configuration of " + n.Tag }

// GoString hides the content of the node from %#v.
func (n ConfigNode) GoString() string { return n.String() }

// LogValue hides the content of the node from structured logs.
func (n ConfigNode) LogValue() slog.Value { return slog.StringValue(n.String()) }

// AllowedTag is a tag that may be sent to clients.
type AllowedTag struct {
	Tag string
	// Identity is the attribute that distinguishes siblings with this tag; empty if there
	// is only one.
	Identity string
	// Attributes may be sent. They include Identity.
	Attributes []string
}

// ConfigAllowList lists everything that may be sent. A tag that is not listed is dropped
// with all its descendants; an attribute that is not listed is dropped alone.
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

// ConfigStep is one step of a path: a tag and, if Attr is not empty, the required value
// of that attribute.
type ConfigStep struct{ Tag, Attr, Value string }

// ConfigPath leads from the root to nodes. The empty path is the root.
type ConfigPath []ConfigStep

// Bounds of a path.
const (
	MaxConfigPath  = 1024 // bytes
	maxConfigSteps = 32
)

// ParseConfigPath parses ROOT, or steps separated by dots, each a tag or Tag[@attr=value]. A value ends at the closing
// bracket, so it may contain dots. It returns false for any other text, such as an empty text or a leading slash.
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

// configName cuts a name off the start of text: a letter, then letters, digits, "_" and
// "-".
func configName(text string) (name, rest string) {
	end := 0
	for end < len(text) && (isLetter(text[end]) || end > 0 && (isDigit(text[end]) || text[end] == '_' || text[end] == '-')) {
		end++
	}
	return text[:end], text[end:]
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// ProjectedNode is the part of a node that may be sent.
type ProjectedNode struct {
	Tag   string
	XPath string // readable by ParseConfigPath
	Attrs map[string]string
}

// ConfigProjection is the part of the selected subtrees that may be sent.
type ConfigProjection struct {
	Nodes []ProjectedNode
	// Suppressed counts the nodes that were dropped because their tag, or a tag above
	// them, is not allowed.
	Suppressed int
}

// ProjectConfig follows a path from the root and filters the selected subtrees, in
// document order. It returns false if the path selects nothing. It has no side effects.
//
// A step may compare only an attribute that may be sent. Otherwise a caller could guess
// the value of a secret attribute character by character.
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

// located is a node with its path in the tree.
type located struct {
	node    ConfigNode
	xpath   string
	allowed *AllowedTag // nil if the node or one above it is not allowed
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

// names reports whether the step selects the node.
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
