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
	Tag   string     `json:"tag" doc:"The element's name."`
	XPath string     `json:"xpath" doc:"It can be asked for."`
	Attrs Attributes `json:"attrs" doc:"The attributes that may leave."`
}

// Configuration is the response of POST /api/config/get.
type Configuration struct {
	Nodes      []ConfigNode `json:"nodes" doc:"In document order."`
	Suppressed int          `json:"suppressed" doc:"Elements of the requested part that may not leave; an empty part has none."`
	AllowList  AllowList    `json:"allowList" doc:"The table of what may leave."`
	Detail     string       `json:"detail" doc:"For people; its wording may change."`
}
