package peer

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
)

// cut splits a package into random buffers, as it may arrive. Some are empty.
func cut(t *rapid.T, b []byte) (s mem.BufferSlice) {
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(t, "buffer")
		s, b = append(s, mem.SliceBuffer(b[:n])), b[n:]
	}
	return s
}

// TestPiecesAreProtobuf checks that the codec writes the same bytes as the generated code, and reads its bytes.
func TestPiecesAreProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &peerpb.HMACPiece{
			Data: rapid.SliceOfN(rapid.Byte(), 1, 4096).Draw(t, "data"), Last: rapid.Bool().Draw(t, "last"),
		}
		sent, err := protobuf.Marshal(&outbound{data: mem.SliceBuffer(want.GetData()), last: want.GetLast()})
		if err != nil {
			t.Fatal(err)
		}
		got := new(peerpb.HMACPiece)
		if err := protobuf.Unmarshal(sent, got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("sent %v as %v, %v", want, got, err)
		}

		generated, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, wire := range [][]byte{generated, sent.Materialize()} {
			var heard bytes.Buffer
			piece := inbound{to: &heard}
			if err := protobuf.Unmarshal(cut(t, wire), &piece); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(heard.Bytes(), want.GetData()) || piece.n != int64(heard.Len()) || piece.last != want.GetLast() {
				t.Fatalf("of %v, heard %x and %+v", want, heard.Bytes(), piece)
			}
		}
	})
}

// TestUnknownFieldsOfAPieceAreSkipped checks that fields of a later version are ignored.
func TestUnknownFieldsOfAPieceAreSkipped(t *testing.T) {
	var b []byte
	b = protowire.AppendVarint(protowire.AppendTag(b, 100, protowire.VarintType), 1<<40)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 101, protowire.Fixed32Type), 7)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 102, protowire.Fixed64Type), 7)
	b = protowire.AppendBytes(protowire.AppendTag(b, 103, protowire.BytesType), []byte("later"))
	b = protowire.AppendBytes(protowire.AppendTag(b, 104, protowire.BytesType), nil)
	b = protowire.AppendBytes(protowire.AppendTag(b, pieceData, protowire.BytesType), []byte("text"))
	b = protowire.AppendVarint(protowire.AppendTag(b, pieceLast, protowire.VarintType), 1)
	rapid.Check(t, func(t *rapid.T) {
		var heard strings.Builder
		piece := inbound{to: &heard}
		if err := protobuf.Unmarshal(cut(t, b), &piece); err != nil || heard.String() != "text" || !piece.last {
			t.Fatalf("heard %q, %+v, %v", heard.String(), piece, err)
		}
	})
}

func TestMalformedPieces(t *testing.T) {
	text := protowire.AppendBytes(protowire.AppendTag(nil, pieceData, protowire.BytesType), []byte("text"))
	for name, wire := range map[string][]byte{
		"NoTag":      {0x80},
		"NoNumber":   protowire.AppendTag(nil, pieceLast, protowire.VarintType),
		"NoLength":   protowire.AppendTag(nil, pieceData, protowire.BytesType),
		"TooShort":   text[:len(text)-1],
		"HugeData":   protowire.AppendVarint(protowire.AppendTag(nil, pieceData, protowire.BytesType), 1<<63),
		"HugeOther":  protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.BytesType), 1<<63),
		"Fixed32":    append(protowire.AppendTag(nil, 100, protowire.Fixed32Type), 1, 2),
		"Fixed64":    append(protowire.AppendTag(nil, 100, protowire.Fixed64Type), 1, 2),
		"Group":      protowire.AppendTag(nil, 100, protowire.StartGroupType),
		"NumberZero": {0x02, 0x00},
		"Twice":      append(bytes.Clone(text), text...),
	} {
		if err := protobuf.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &inbound{to: new(bytes.Buffer)}); err == nil {
			t.Errorf("%s: %x is taken for a piece", name, wire)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // no input causes a panic
		_ = protobuf.Unmarshal(cut(t, rapid.SliceOf(rapid.Byte()).Draw(t, "wire")), &inbound{to: new(bytes.Buffer)})
	})
}

// TestPieceThatCannotBeWritten checks that a write error of the destination is returned.
func TestPieceThatCannotBeWritten(t *testing.T) {
	wire := protowire.AppendBytes(protowire.AppendTag(nil, pieceData, protowire.BytesType), []byte("text"))
	piece := inbound{to: shut{}}
	if err := protobuf.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &piece); err == nil || piece.n != 0 {
		t.Errorf("got %v and %+v", err, piece)
	}
}

type shut struct{}

func (shut) Write([]byte) (int, error) { return 0, bytes.ErrTooLarge }
