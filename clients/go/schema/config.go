package schema

// ConfigRequest names a part of the key server's configuration.
type ConfigRequest struct {
	XPath string `json:"xpath" limit:"1..1024" doc:"ROOT, or tags separated by dots, each a Tag or Tag[@attr=value]. It does not start with a slash."`
}

// Attributes are the attributes of an element by their names.
type Attributes map[string]string

// AllowList lists, by tag, the attributes that responses may contain. Elements with other
// tags, and their children, are never in a response.
type AllowList map[string][]string

// ConfigNode is the part of an element that responses may contain.
type ConfigNode struct {
	Tag   string     `json:"tag" doc:"Name of the element."`
	XPath string     `json:"xpath" doc:"Path with which the element can be requested."`
	Attrs Attributes `json:"attrs" doc:"Attributes that responses may contain."`
}

// Configuration is the response of POST /api/config/get.
type Configuration struct {
	Nodes      []ConfigNode `json:"nodes" doc:"Elements in document order."`
	Suppressed int          `json:"suppressed" doc:"Number of elements of the requested part that responses may not contain; 0 if the part is empty."`
	AllowList  AllowList    `json:"allowList" doc:"Attributes that responses may contain, by tag."`
	Detail     string       `json:"detail" doc:"Text for people; the wording may change."`
}
