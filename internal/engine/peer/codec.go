package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// codec is the protobuf codec of gRPC, with its own code for the pieces of a long message. The generated code would
// copy and allocate each piece once more, on both sides.
type codec struct{ encoding.CodecV2 }

var protobuf = codec{encoding.GetCodecV2(grpcproto.Name)}

// Field numbers of HMACPiece in a piece of a message.
const (
	pieceData protowire.Number = 3
	pieceLast protowire.Number = 4
	pieceMAC  protowire.Number = 6
)

// outbound is an HMACPiece to send. gRPC frees data.
type outbound struct {
	data mem.Buffer
	last bool
	mac  []byte // MAC to verify; only in the last piece
}

// inbound is an HMACPiece that is received. Its data is written to the field to, directly from the buffer of gRPC.
type inbound struct {
	to   io.Writer
	n    int64 // bytes of all pieces until now
	last bool
	had  bool   // the data field of the current piece was already read
	mac  []byte // MAC in a piece, nil if there is none
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	piece, ok := v.(*outbound)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	var head []byte
	if piece.last {
		head = protowire.AppendTag(head, pieceLast, protowire.VarintType)
		head = protowire.AppendVarint(head, protowire.EncodeBool(true))
	}
	if len(piece.mac) > 0 {
		head = protowire.AppendTag(head, pieceMAC, protowire.BytesType)
		head = protowire.AppendBytes(head, piece.mac)
	}
	head = protowire.AppendTag(head, pieceData, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(piece.data.Len())) //nolint:gosec // a length is never negative
	return mem.BufferSlice{mem.SliceBuffer(head), piece.data}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *inbound:
		return v.unmarshal(data)
	case *peerpb.ACLResponse:
		return c.list(data, v, aclEntries, maxEntries)
	case *peerpb.LookupResponse:
		return c.list(data, v, lookupPrincipals, keyserver.MaxLookup)
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}

// list decodes data into v. It fails if the repeated field element has more than most elements.
func (c codec) list(data mem.BufferSlice, v proto.Message, element protowire.Number, most int) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := atMost(whole.ReadOnlyData(), element, most); err != nil {
		return err
	}
	return proto.Unmarshal(whole.ReadOnlyData(), v)
}

func (p *inbound) unmarshal(data mem.BufferSlice) error {
	p.had = false
	r := data.Reader()
	defer func() { _ = r.Close() }() // an error would have no effect
	for r.Remaining() > 0 {
		if err := p.field(r); err != nil {
			return err
		}
	}
	return nil
}

// field reads one field. It skips unknown fields, like every protobuf decoder.
func (p *inbound) field(r *mem.Reader) error {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	number, kind := protowire.DecodeTag(tag)
	if !number.IsValid() {
		return fmt.Errorf("a field has the invalid number %d", number)
	}
	switch kind {
	case protowire.VarintType:
		v, err := binary.ReadUvarint(r)
		if number == pieceLast {
			p.last = protowire.DecodeBool(v)
		}
		return err
	case protowire.BytesType:
		n, err := binary.ReadUvarint(r)
		switch {
		case err != nil:
			return err
		case n > uint64(r.Remaining()): //nolint:gosec // the remaining length is never negative
			return io.ErrUnexpectedEOF
		case number == pieceData:
			return p.take(r, int(n)) //nolint:gosec // bounded above
		case number == pieceMAC && n == keyserver.MACSize:
			p.mac = make([]byte, n)
			_, err := io.ReadFull(r, p.mac)
			return err
		}
		return skip(r, int(n)) //nolint:gosec // bounded above
	case protowire.Fixed32Type:
		return skip(r, 4)
	case protowire.Fixed64Type:
		return skip(r, 8)
	default:
		return fmt.Errorf("a field has the unsupported wire type %d", kind)
	}
}

// take writes the next n bytes to p.to. It rejects a second data field in one piece. For protobuf the last value would
// count, but the first value is already written.
func (p *inbound) take(r *mem.Reader, n int) error {
	if p.had {
		return errors.New("a piece has its data field twice")
	}
	p.had = true
	if n == 0 {
		return nil
	}
	parts, err := r.Peek(n, nil)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := p.to.Write(part); err != nil {
			return err
		}
	}
	p.n += int64(n)
	return skip(r, n)
}

func skip(r *mem.Reader, n int) error {
	if n == 0 {
		return nil
	}
	if _, err := r.Discard(n); err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	return nil
}
