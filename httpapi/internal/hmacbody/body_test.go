package hmacbody

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const link = "AAAAAQAAAAAAAAPp"

// read opens a body and writes its message to a buffer, as the handler does.
func read(src io.Reader) (gotLink string, message []byte, err error) {
	b, err := Read(HMAC, src, Spool{})
	if err != nil {
		return "", nil, err
	}
	defer b.Close()
	gotLink = b.Link().Base64()
	var out bytes.Buffer
	if _, err := b.WriteTo(&out); err != nil {
		return "", nil, err
	}
	return gotLink, out.Bytes(), nil
}

// reference decodes the same body with encoding/json, token by token, and the standard base64 decoder. It reads
// everything into memory and accepts exactly the valid bodies.
func reference(body []byte) (gotLink string, message []byte, err error) {
	refused := errors.New("refused")
	if !utf8.Valid(body) {
		return "", nil, refused
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	token := func() json.Token {
		t, tokenErr := dec.Token()
		if tokenErr != nil {
			err = refused
		}
		return t
	}
	if token() != json.Delim('{') {
		return "", nil, refused
	}
	got := map[string][]byte{}
	for err == nil && dec.More() {
		name, ok := token().(string)
		if err != nil || !ok || (name != "hiddenLink" && name != memberData) || got[name] != nil {
			return "", nil, refused
		}
		text, ok := token().(string)
		if err != nil || !ok {
			return "", nil, refused
		}
		raw, decodeErr := base64.StdEncoding.Strict().DecodeString(text)
		if decodeErr != nil || base64.StdEncoding.EncodeToString(raw) != text {
			return "", nil, refused
		}
		got[name] = append(make([]byte, 0, len(raw)+1), raw...)
	}
	if token() != json.Delim('}') || err != nil {
		return "", nil, refused
	}
	if _, end := dec.Token(); !errors.Is(end, io.EOF) {
		return "", nil, refused
	}
	l, m := got["hiddenLink"], got[memberData]
	if len(l) == 0 || len(l) > values.MaxHiddenLink || m == nil || len(m) > keyserver.MaxMessage {
		return "", nil, refused
	}
	return base64.StdEncoding.EncodeToString(l), m, nil
}

func TestAccepted(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20000) // longer than two windows
	b64 := base64.StdEncoding.EncodeToString([]byte(long))
	slashes := bytes.Repeat([]byte{0xff, 0xff, 0xff}, 50000)
	slashed := base64.StdEncoding.EncodeToString(slashes)
	cases := map[string]struct {
		reason, body string
		want         []byte
	}{
		"Small":              {"the everyday request", `{"hiddenLink":"` + link + `","data":"aGVsbG8="}`, []byte("hello")},
		"Empty":              {"the empty string is the empty message", `{"hiddenLink":"` + link + `","data":""}`, nil},
		"EmptyFirst":         {"also before the link", `{"data":"","hiddenLink":"` + link + `"}`, nil},
		"DataFirst":          {"member order does not matter", `{"data":"aGVsbG8=","hiddenLink":"` + link + `"}`, []byte("hello")},
		"Space":              {"space is legal between tokens", " \t\r\n{ \"hiddenLink\" :\n\"" + link + "\" ,\t\"data\"\r: \"aGVsbG8=\" } \n", []byte("hello")},
		"EscapedSlash":       {"PHP and others escape the slash", `{"hiddenLink":"` + link + `","data":"\/\/\/\/"}`, []byte{0xff, 0xff, 0xff}},
		"EscapedUnicode":     {"any character may be escaped", `{"hiddenLink":"` + link + `","data":"\u002f\u002F\u0041\u003d"}`, []byte{0xff, 0xf0}},
		"EscapedLink":        {"in the link too", `{"hiddenLink":"\u0041AAAAQAAAAAAAAPp","data":"aGVsbG8="}`, []byte("hello")},
		"EscapedNames":       {"and in names", `{"\u0068iddenLink":"` + link + `","d\u0061ta":"aGVsbG8="}`, []byte("hello")},
		"Long":               {"more than the buffer is streamed", `{"hiddenLink":"` + link + `","data":"` + b64 + `"}`, []byte(long)},
		"LongSpooled":        {"and spooled where the key comes last", `{"data":"` + b64 + `","hiddenLink":"` + link + `"}`, []byte(long)},
		"LongThenSpace":      {"space behind a streamed message", `{"hiddenLink":"` + link + `","data":"` + b64 + `"  }` + "\n\n", []byte(long)},
		"LongEscaped":        {"escapes cross windows", `{"hiddenLink":"` + link + `","data":"` + strings.ReplaceAll(slashed, "/", `\/`) + `"}`, slashes},
		"LongUnicode":        {"longer escapes cross windows", `{"hiddenLink":"` + link + `","data":"` + strings.ReplaceAll(slashed, "/", `\u002f`) + `"}`, slashes},
		"LongEscapedSpooled": {"and when spooled", `{"data":"` + strings.ReplaceAll(slashed, "/", `\u002f`) + `","hiddenLink":"` + link + `"}`, slashes},
	}
	for name, tc := range cases {
		for _, how := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{{"whole", func(r io.Reader) io.Reader { return r }}, {"half", iotest.HalfReader}, {"byte", iotest.OneByteReader}, {"dataErr", iotest.DataErrReader}} {
			t.Run(name+"/"+how.name, func(t *testing.T) {
				l, got, err := read(how.wrap(strings.NewReader(tc.body)))
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if l != link || !bytes.Equal(got, tc.want) {
					t.Fatalf("%s: link %s and %d bytes, want %d", tc.reason, l, len(got), len(tc.want))
				}
			})
		}
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("QUJD", 50000)
	message := func(data string) string { return `{"hiddenLink":"` + link + `","data":"` + data + `"}` }
	cases := map[string]struct{ body, names string }{
		"Nothing":            {``, "body"},
		"OnlySpace":          {" \n", "body"},
		"NotAnObject":        {`["a"]`, "body"},
		"EmptyObject":        {`{}`, "hiddenLink"},
		"NoLink":             {`{"data":""}`, "hiddenLink"},
		"NoData":             {`{"hiddenLink":"` + link + `"}`, "data"},
		"NullLink":           {`{"hiddenLink":null,"data":""}`, "hiddenLink"},
		"NullData":           {`{"hiddenLink":"` + link + `","data":null}`, "data"},
		"NumberData":         {`{"hiddenLink":"` + link + `","data":1}`, "data"},
		"ObjectData":         {`{"hiddenLink":"` + link + `","data":{}}`, "data"},
		"ArrayData":          {`{"hiddenLink":"` + link + `","data":["QQ=="]}`, "data"},
		"EmptyLink":          {`{"hiddenLink":"","data":""}`, "hiddenLink"},
		"LongLink":           {`{"hiddenLink":"` + strings.Repeat("AAAA", 22) + `","data":""}`, "hiddenLink"},
		"HugeLink":           {`{"hiddenLink":"` + strings.Repeat("AAAA", 20000) + `","data":""}`, ""},
		"StrayLink":          {`{"hiddenLink":"AAAAAQAAAAAAAAPpQR==","data":""}`, "hiddenLink"},
		"TwiceLink":          {`{"hiddenLink":"` + link + `","hiddenLink":"` + link + `","data":""}`, "hiddenLink"},
		"TwiceData":          {`{"hiddenLink":"` + link + `","data":"","data":""}`, "data"},
		"TwiceLongData":      {`{"hiddenLink":"` + link + `","data":"` + long + `","data":""}`, "data"},
		"TwiceEscaped":       {`{"hiddenLink":"` + link + `","data":"","d\u0061ta":""}`, "data"},
		"Unknown":            {`{"hiddenLink":"` + link + `","data":"","more":1}`, "more"},
		"UnknownAfterLong":   {`{"hiddenLink":"` + link + `","data":"` + long + `","more":1}`, "more"},
		"OtherCase":          {`{"HiddenLink":"` + link + `","data":""}`, "HiddenLink"},
		"Trailing":           {message("") + `{}`, "body"},
		"TrailingAfterLong":  {message(long) + `x`, "body"},
		"TrailingComma":      {`{"hiddenLink":"` + link + `","data":"",}`, "body"},
		"LeadingComma":       {`{,"hiddenLink":"` + link + `","data":""}`, "body"},
		"NoComma":            {`{"hiddenLink":"` + link + `" "data":""}`, "body"},
		"NoColon":            {`{"hiddenLink" "` + link + `","data":""}`, "body"},
		"Cut":                {`{"hiddenLink":"` + link + `","data":"QUJD`, "data"},
		"CutEscape":          {`{"hiddenLink":"` + link + `","data":"QUJD\u00`, "data"},
		"CutLong":            {`{"hiddenLink":"` + link + `","data":"` + long, "data"},
		"CutAfterData":       {`{"hiddenLink":"` + link + `","data":""`, "body"},
		"ByteOrderMark":      {"\ufeff" + message(""), "body"},
		"StrayBits":          {message("QR=="), "data"},
		"StrayBits2":         {message("QUF="), "data"},
		"NoPadding":          {message("QQ"), "data"},
		"HalfPadding":        {message("QQ="), "data"},
		"ExtraPadding":       {message("QQ==="), "data"},
		"OnlyPadding":        {message("===="), "data"},
		"OneCharacter":       {message("Q==="), "data"},
		"PaddingInside":      {message("QQ==QUJD"), "data"},
		"URLAlphabet":        {message("__-_"), "data"},
		"EscapedCR":          {message(`QUJD\r\nQQ==`), "data"},
		"EscapedNewlineEnd":  {message(`QUJD\n`), "data"},
		"RawNewline":         {message("QUJD\nQUJD"), "data"},
		"FourNewlines":       {message("QUJD\r\n\r\nQUJD"), "data"},
		"Space":              {message("QUJD QUJD"), "data"},
		"Backslash":          {message(`QUJ\u005c/`), "data"},
		"BackslashSplit":     {message(`Q\u005c/A`), "data"},
		"EscapedQuote":       {message(`QUJ\"`), "data"},
		"BadEscape":          {message(`QUJ\x41`), "data"},
		"BadUnicodeDigits":   {message(`QUJ\u00zz`), "data"},
		"NonASCII":           {message("QUJ\u00e9"), "data"},
		"NonASCIIEscape":     {message(`QUJ\u0141`), "data"},
		"Surrogate":          {message(`QUJ\ud83d`), "data"},
		"NotUTF8":            {message("QUJ\xff"), "data"},
		"NotUTF8Name":        {"{\"hiddenLink\":\"" + link + "\",\"da\xffta\":\"\"}", "is not a member"},
		"LongStrayBits":      {message(long + "QR=="), "data"},
		"LongPaddingInside":  {message(long + "QQ==" + long), "data"},
		"LongNoPadding":      {message(long + "QQ"), "data"},
		"LongBadInTheMiddle": {message(long + "!UJD" + long), "data"},
		"SpooledStrayBits":   {`{"data":"` + long + `QR==","hiddenLink":"` + link + `"}`, "data"},
		"SpooledNoLink":      {`{"data":"` + long + `"}`, "hiddenLink"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(tc.body), iotest.OneByteReader(strings.NewReader(tc.body))} {
				_, _, err := read(src)
				f := fault.As(err)
				if f == nil || f.Code != fault.BadRequest || f.Reason != fault.ReasonBadMessage {
					t.Fatalf("got %v, want a BAD_REQUEST that the audit knows as badMessage", err)
				}
				if !strings.Contains(f.Detail, tc.names) {
					t.Errorf("detail %q does not name %q", f.Detail, tc.names)
				}
			}
		})
	}
}

// TestLimit accepts a message of exactly the limit. One byte more is refused as soon as
// it is decoded, without reading the rest.
func TestLimit(t *testing.T) {
	for _, tc := range []struct {
		size int
		ok   bool
	}{{keyserver.MaxMessage - 1, true}, {keyserver.MaxMessage, true}, {keyserver.MaxMessage + 1, false}} {
		text := base64.StdEncoding.EncodeToString(make([]byte, tc.size))
		for _, body := range []string{
			`{"hiddenLink":"` + link + `","data":"` + text + `"}`,
			`{"data":"` + text + `","hiddenLink":"` + link + `"}`,
		} {
			_, m, err := read(strings.NewReader(body))
			if (err == nil) != tc.ok || (tc.ok && len(m) != tc.size) {
				t.Errorf("%d bytes: got %d, %v", tc.size, len(m), err)
			}
		}
	}
	t.Run("at once", func(t *testing.T) {
		endless := io.MultiReader(strings.NewReader(`{"hiddenLink":"`+link+`","data":"`), &repeat{left: 1 << 40})
		b, err := Read(HMAC, endless, Spool{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if _, err := b.WriteTo(io.Discard); fault.CodeOf(err) != fault.BadRequest {
			t.Fatalf("an endless message: %v", err)
		}
	})
}

type repeat struct{ left int64 }

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'A'
	}
	r.left -= int64(len(p))
	return len(p), nil
}

// A malformed short message is refused before its MAC is computed: Read fails, and WriteTo is not called.
func TestShortMessageIsCheckedBeforeUse(t *testing.T) {
	for _, body := range []string{
		`{"hiddenLink":"` + link + `","data":"QR=="}`,
		`{"hiddenLink":"` + link + `","data":"QUJD"}x`,
		`{"hiddenLink":"` + link + `","data":"QUJD","more":1}`,
	} {
		if b, err := Read(HMAC, strings.NewReader(body), Spool{}); err == nil {
			b.Close()
			t.Errorf("%s was let through", body)
		}
	}
}

func TestBrokenSource(t *testing.T) {
	broken := errors.New("broken")
	body := `{"hiddenLink":"` + link + `","data":"` + strings.Repeat("QUJD", 60000) + `"}`
	for _, cut := range []int{0, 1, 5, 40, 60, 65536, 200000} {
		_, _, err := read(io.MultiReader(strings.NewReader(body[:cut]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func TestMessageIsWrittenOnce(t *testing.T) {
	b, err := Read(HMAC, strings.NewReader(`{"hiddenLink":"`+link+`","data":"QUJD"}`), Spool{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.WriteTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	if n, err := b.WriteTo(io.Discard); err == nil {
		t.Fatalf("written twice, %d bytes", n)
	}
}

// The temporary file never has a name, so that no file stays after a crash.
func TestSpoolIsNameless(t *testing.T) {
	dir := t.TempDir()
	body := `{"data":"` + strings.Repeat("QUJD", 50000) + `","hiddenLink":"` + link + `"}`
	b, err := Read(HMAC, strings.NewReader(body), Spool{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.spool == nil {
		t.Fatal("not spooled")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("the directory holds %v, %v", left, err)
	}
	t.Run("an unusable directory is not the caller's fault", func(t *testing.T) {
		_, err := Read(HMAC, strings.NewReader(body), Spool{Dir: dir + "/absent"})
		if err == nil || fault.As(err) != nil {
			t.Fatalf("got %v", err)
		}
	})
}

// Close erases the message from buffers that the pool keeps.
func TestCloseWipes(t *testing.T) {
	b, err := Read(HMAC, strings.NewReader(`{"hiddenLink":"`+link+`","data":"`+strings.Repeat("QUJD", 30000)+`"}`), Spool{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if bytes.Contains(b.window[:], []byte("QUJD")) || bytes.Contains(b.chunk[:], []byte("ABC")) {
		t.Fatal("the message is still in the buffers")
	}
}

// FuzzHMACBody compares each body, read in random pieces, with reference: both accept it with the same result, or both
// refuse it.
func FuzzHMACBody(f *testing.F) {
	seeds := []string{
		`{"hiddenLink":"` + link + `","data":"aGVsbG8="}`, `{"data":"\u002f\/+A","hiddenLink":"` + link + `"}`,
		`{"hiddenLink":"` + link + `","data":"QR=="}`, `{"hiddenLink":"","data":""}`, `{"data":"QQ==QQ=="}`,
		`{"hiddenLink":"` + link + `","data":"Q\u005c/A"} `, `{"hiddenLink":"` + link + `","d\u0061ta":""}`, `{`, `[]`, `{"a":1}`,
	}
	for i, s := range seeds {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint64) {
		wantLink, want, wantErr := reference(body)
		gotLink, got, err := read(&choppy{rest: body, random: rand.New(rand.NewPCG(cut, 1))})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: accepted is %v, by the reference %v (%v)", body, err == nil, wantErr == nil, err)
		}
		if err == nil && (gotLink != wantLink || !bytes.Equal(got, want)) {
			t.Fatalf("%q: read %s %x, by the reference %s %x", body, gotLink, got, wantLink, want)
		}
	})
}

// choppy is a reader that returns pieces of random length.
type choppy struct {
	rest   []byte
	random *rand.Rand
}

func (c *choppy) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:1+c.random.IntN(len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}

// TestLargeAgainstReference compares large bodies with reference. They have random escapes and one random error each,
// which the fuzzer would find only after a long time.
func TestLargeAgainstReference(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for round := range 150 {
		raw := make([]byte, random.IntN(4*windowSize))
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		text := []byte(base64.StdEncoding.EncodeToString(raw))
		text = escaped(text, random)
		if round%2 == 1 && len(text) > 0 {
			text[random.IntN(len(text))] = byte(random.Uint32())
		}
		body := fmt.Sprintf(`{"hiddenLink":"%s","data":"%s"}`, link, text)
		if round%3 == 0 {
			body = fmt.Sprintf(`{"data":"%s","hiddenLink":"%s"}`, text, link)
		}
		_, want, wantErr := reference([]byte(body))
		_, got, err := read(&choppy{rest: []byte(body), random: random})
		if (err == nil) != (wantErr == nil) || (err == nil && !bytes.Equal(got, want)) {
			t.Fatalf("round %d: %v, by the reference %v", round, err, wantErr)
		}
	}
}

func escaped(text []byte, random *rand.Rand) []byte {
	often := 1 + random.IntN(2000)
	out := make([]byte, 0, 2*len(text))
	for _, c := range text {
		switch {
		case random.IntN(often) != 0:
			out = append(out, c)
		case c == '/':
			out = append(out, '\\', '/')
		default:
			out = fmt.Appendf(out, `\u%04x`, c)
		}
	}
	return out
}
