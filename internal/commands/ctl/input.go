package ctl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// input has the flag values of one command.
type input struct {
	verb  *verb
	texts map[string]*texts // by name of the field
	files map[string]*texts
	whole texts // value of --file
}

// texts is the value of a flag. Only the schema of its field can interpret the texts.
type texts struct {
	is   *value
	said []string
	what string // type of the value in the help
}

// String implements pflag.Value.
func (t *texts) String() string { return strings.Join(t.said, ",") }

// Type implements pflag.Value.
func (t *texts) Type() string { return t.what }

// Set implements pflag.Value. A repeated flag adds an element if the field is a list. Otherwise the last value is used.
func (t *texts) Set(s string) error {
	if t.is == nil || t.is.kind != array {
		t.said = nil
	}
	t.said = append(t.said, s)
	return nil
}

// inputs adds the flags of a verb to its command.
func (v *verb) inputs(cmd *cobra.Command) *input {
	in := &input{verb: v, texts: map[string]*texts{}, files: map[string]*texts{}}
	f := cmd.Flags()
	for _, list := range [][]field{v.query, v.body} {
		for i := range list {
			one := &list[i]
			if !one.secret {
				in.texts[one.name] = &texts{is: &one.value, what: one.word()}
				f.Var(in.texts[one.name], one.flag, one.help())
				if one.kind == boolean {
					f.Lookup(one.flag).NoOptDefVal = "true"
				}
				switch {
				case one.refKind == refOperation, one.kind == array && one.of.refKind == refOperation, one.value.name == "OperationKey":
					cmdline.Choices(cmd, one.flag, operationKeys()...)
				case len(one.choices()) > 0:
					cmdline.Choices(cmd, one.flag, one.choices()...)
				}
			}
			if one.secret || one.bytes() {
				in.files[one.name] = &texts{is: &one.value, what: "FILE"}
				f.Var(in.files[one.name], one.flag+"-file", one.fileHelp(v))
			}
		}
	}
	if len(v.body) > 0 {
		in.whole.what = "FILE"
		f.Var(&in.whole, "file", "file with the request as a JSON object, - is standard input; flags override its members")
	}
	return in
}

// bytes reports whether a value is binary data that users have in a file: base64 data that is not an identifier.
func (v *value) bytes() bool {
	switch v.kind {
	case array:
		return v.of.bytes()
	default:
		return v.name == "Base64" || v.name == "DER" || v.name == "TrustBlob"
	}
}

// word names the type of a flag's value in the help.
func (v *value) word() string {
	switch v.kind {
	case integer:
		return "NUMBER"
	case boolean:
		return "BOOL"
	case instant:
		return "TIME"
	case array:
		return v.of.word()
	case object, free:
		return "JSON"
	case text, either:
	}
	switch v.name {
	case "Stamp":
		return "TIME"
	case "":
		return "TEXT"
	default:
		return strings.ToUpper(dashed(strings.TrimPrefix(v.name, "Asked")))
	}
}

func (v *value) choices() []string {
	if v.kind == array {
		return v.of.choices()
	}
	return v.enum
}

// help returns the description of a field with its limits.
func (f *field) help() string {
	text := strings.TrimRight(f.doc, ".")
	if text == "" && f.kind == array {
		text = strings.TrimRight(f.of.doc, ".")
	}
	add := func(s string) {
		if text != "" {
			text += "; "
		}
		text += s
	}
	if f.required && !f.secret {
		add("required")
	}
	if list := f.choices(); len(list) > 0 {
		add("one of " + strings.Join(list, ", "))
	}
	switch {
	case f.low != nil && f.high != nil && *f.high < 1<<53:
		add(fmt.Sprintf("%d to %d", *f.low, *f.high))
	case f.low != nil:
		add(fmt.Sprintf("from %d", *f.low))
	}
	if f.value.name == "Stamp" {
		add("RFC 3339 is accepted")
	}
	switch {
	case f.kind == array && (f.of.kind == object || f.of.kind == free):
		add("may be given several times, each a JSON object: " + f.of.example())
	case f.kind == array:
		add("may be given several times; '' alone is an empty list")
	case f.kind == object:
		add("a JSON object: " + f.example())
	}
	return text
}

// example returns an example of a JSON object with the members of v.
func (v *value) example() string {
	var parts []string
	for _, p := range v.fields {
		parts = append(parts, `"`+p.name+`"`)
	}
	if parts == nil {
		return "{}"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (f *field) fileHelp(v *verb) string {
	switch {
	case f.secret:
		text := strings.TrimRight(f.doc, ".")
		if text != "" {
			text += "; "
		}
		return text + "file with the value, - is standard input; no flag takes the value itself, because every user of the machine can read command lines"
	case f.name == v.stream:
		return "file with the bytes; default: standard input"
	case f.value.name == "DER" || f.kind == array:
		return "file with the value, in PEM or DER; - is standard input"
	default:
		return "file with the bytes, not in base64; - is standard input"
	}
}

// request is the request that a command line describes.
type request struct {
	segments map[string]string
	query    string
	body     []byte
	rest     io.Reader // later part of a streamed body, after body
	in       any       // the request as the server decodes it
	target   string
}

// request builds the request from the flags and the named files.
func (in *input) request(cmd *cobra.Command, args []string) (*request, error) {
	r := &request{segments: map[string]string{}}
	for i, p := range in.verb.path {
		said, err := p.convertText(strings.ToUpper(dashed(p.name)), args[i])
		if err != nil {
			return nil, err
		}
		r.segments[p.name] = said
	}
	query := url.Values{}
	for _, f := range in.verb.query {
		for _, said := range in.texts[f.name].said {
			is := &f.value
			if is.kind == array {
				is = is.of
			}
			said, err := is.convertText("--"+f.flag, said)
			if err != nil {
				return nil, err
			}
			query.Add(f.name, said)
		}
		if f.required && !query.Has(f.name) {
			return nil, cmdline.Usagef("--%s is missing; see %s --help", f.flag, cmd.CommandPath())
		}
	}
	r.query = query.Encode()
	if len(in.verb.body) > 0 {
		if err := in.fill(cmd, r); err != nil {
			return nil, err
		}
	}
	return r, in.check(r)
}

// check returns an error that names the flag if the server would reject the request.
func (in *input) check(r *request) error {
	target, typed, err := in.verb.route.Decode(func(name string) string { return r.segments[name] }, r.query, r.body)
	if err != nil {
		return &cmdline.Failure{Code: cmdline.ExitUsage, Err: in.verb.byFlag(err)}
	}
	r.target, r.in = target, typed
	return nil
}

// fill builds the body of the request.
func (in *input) fill(cmd *cobra.Command, r *request) error {
	var body members[jsontext.Value]
	if file := in.whole.String(); file != "" {
		if in.verb.stream != "" {
			return in.streamWhole(cmd, r, file)
		}
		text, err := open(cmd, file, in.verb.route.BodyLimit)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		if err := json.Unmarshal(text, &body); err != nil || body == nil {
			return cmdline.Usagef("--file: %s must be a JSON object", file)
		}
		for _, f := range in.verb.body {
			one, there := body.get(f.name)
			if !there || f.secret {
				continue
			}
			spelled, err := f.convertJSON("--file: "+f.name, one)
			if err != nil {
				return err
			}
			body.set(f.name, spelled)
		}
	}
	for i := range in.verb.body {
		f := &in.verb.body[i]
		if f.name == in.verb.stream {
			continue
		}
		spelled, err := in.spell(cmd, f)
		if err != nil {
			return err
		}
		if spelled != nil {
			body.set(f.name, spelled)
		}
		if _, there := body.get(f.name); f.required && !there {
			return cmdline.Usagef("--%s is missing; see %s --help", f.flag, cmd.CommandPath())
		}
	}
	if body == nil {
		body = members[jsontext.Value]{}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return cmdline.Usagef("request: cannot be encoded as JSON; its text must be valid UTF-8")
	}
	r.body = text
	if in.verb.stream == "" {
		return nil
	}
	return in.stream(cmd, r)
}

// stream adds the member of unlimited length as the last member.
func (in *input) stream(cmd *cobra.Command, r *request) error {
	name := in.verb.stream
	var from io.Reader
	switch file, said := in.files[name].String(), in.texts[name].said; {
	case said != nil && file != "":
		return cmdline.Usagef("--%s and --%s-file cannot be combined; give one of them", flagName(name), flagName(name))
	case said != nil:
		from = base64.NewDecoder(base64.StdEncoding.Strict(), strings.NewReader(said[0]))
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("--%s-file: %w", flagName(name), err)
		}
		from = f // the process exits after the call, which closes f
	default:
		from = cmd.InOrStdin()
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	head := r.body[:len(r.body)-1]
	if len(head) > 1 {
		head = append(head, ',')
	}
	r.body = append(append(head, quoted...), `:"`...)
	r.rest = io.MultiReader(client.Encoded(from), strings.NewReader(`"}`))
	return nil
}

func (in *input) streamWhole(cmd *cobra.Command, r *request, file string) error {
	for name, t := range in.texts {
		if t.said != nil {
			return cmdline.Usagef("--file: contains the complete request, which is sent unchanged; leave out --%s", flagName(name))
		}
	}
	r.rest = cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		r.rest = f // the process exits after the call, which closes f
	}
	return nil
}

// open reads a file, or standard input if file is "-". It fails if there are more than limit bytes.
func open(cmd *cobra.Command, file string, limit int64) ([]byte, error) {
	if file == "-" {
		return cmdline.ReadAll("standard input", cmd.InOrStdin(), limit)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the file was only read
	return cmdline.ReadAll(file, f, limit)
}

// spell returns the JSON value of a field from its flags, or nil if no flag sets the field.
func (in *input) spell(cmd *cobra.Command, f *field) (jsontext.Value, error) {
	file := in.files[f.name]
	given := in.texts[f.name] != nil && in.texts[f.name].said != nil
	switch {
	case file != nil && file.said != nil && given:
		return nil, cmdline.Usagef("--%s and --%s-file cannot be combined; give one of them", f.flag, f.flag)
	case file != nil && file.said != nil && !f.secret || f.secret && f.bytes() && file.said != nil:
		return in.ofFiles(cmd, f, file.said)
	case f.secret && (file.said != nil || f.required && in.whole.said == nil):
		said, err := cmdline.Secret(cmd, "--"+f.flag+"-file", file.String(), strings.TrimRight(f.doc+" ", ". ")+" ("+f.name+"): ")
		if err != nil {
			return nil, err
		}
		return quote(said)
	case !given:
		return nil, nil
	}
	said := in.texts[f.name].said
	if f.kind != array {
		return f.spell("--"+f.flag, said[0])
	}
	list := []jsontext.Value{}
	for _, one := range said {
		if one == "" && len(said) == 1 {
			break
		}
		spelled, err := f.of.spell("--"+f.flag, one)
		if err != nil {
			return nil, err
		}
		list = append(list, spelled)
	}
	return marshal(list)
}

// ofFiles returns the contents of files as JSON: base64, or text for PEM certificates and trust blobs.
func (in *input) ofFiles(cmd *cobra.Command, f *field, files []string) (jsontext.Value, error) {
	var list []jsontext.Value
	for _, file := range files {
		content, err := open(cmd, file, in.verb.route.BodyLimit)
		if err != nil {
			return nil, fmt.Errorf("--%s-file: %w", f.flag, err)
		}
		is := &f.value
		if is.kind == array {
			is = is.of
		}
		said := base64.StdEncoding.EncodeToString(content)
		if is.name == "TrustBlob" || is.name == "DER" && strings.Contains(string(content), "-----BEGIN ") {
			said = strings.TrimRight(string(content), "\r\n")
		}
		one, err := quote(said)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	if f.kind == array {
		return marshal(list)
	}
	return list[0], nil
}

// spell converts one text to the JSON value of the schema.
func (v *value) spell(flag, said string) (jsontext.Value, error) {
	switch v.kind {
	case integer:
		if _, err := strconv.ParseInt(said, 10, 64); err != nil {
			return nil, cmdline.Usagef("%s is %q; it must be a number", flag, said)
		}
		return jsontext.Value(said), nil
	case boolean:
		b, err := strconv.ParseBool(said)
		if err != nil {
			return nil, cmdline.Usagef("%s is %q; it must be true or false", flag, said)
		}
		return marshal(b)
	case object, free:
		text := jsontext.Value(said)
		if !text.IsValid() || text.Kind() != '{' {
			return nil, cmdline.Usagef("%s must be a JSON object, such as %s", flag, v.example())
		}
		return v.convertJSON(flag, text)
	case either:
		if _, err := strconv.ParseInt(said, 10, 64); err == nil {
			return jsontext.Value(said), nil
		}
		return marshal(strings.Split(strings.ToUpper(said), ","))
	case text, instant, array: // elements of an array are converted one at a time
	}
	said, err := v.convertText(flag, said)
	if err != nil {
		return nil, err
	}
	return quote(said)
}

func quote(s string) (jsontext.Value, error) { return marshal(s) }

func marshal(what any) (jsontext.Value, error) {
	text, err := json.Marshal(what)
	if err != nil { // the decoder's error may quote a secret
		return nil, cmdline.Usagef("text: must be valid UTF-8")
	}
	return text, nil
}

// byFlag replaces the field name at the beginning of an error by the name of the flag.
func (v *verb) byFlag(err error) error {
	detail := strings.TrimPrefix(err.Error(), "BAD_REQUEST: ")
	for place, list := range [][]field{v.path, v.query, v.body} {
		for _, f := range list {
			rest, ok := strings.CutPrefix(detail, f.name)
			switch {
			case !ok || rest == "" || !strings.ContainsRune(":.[", rune(rest[0])):
			case place == 0:
				return errors.New(strings.ToUpper(f.flag) + rest)
			case f.secret:
				return errors.New("--" + f.flag + "-file" + rest)
			default:
				return errors.New("--" + f.flag + rest)
			}
		}
	}
	return errors.New(detail)
}
