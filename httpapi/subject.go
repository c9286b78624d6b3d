package httpapi

import (
	"crypto/x509"
	"encoding/hex"
	"reflect"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// subjects returns the objects that the values of a request name.
func subjects(r routes.Route, values []wire.Named) []keyserver.Subject {
	var list []keyserver.Subject
	for _, v := range values {
		kind := keyserver.SubjectKind(v.Kind)
		if kind == wire.ByRoute {
			kind = r.Names
		}
		if kind != routes.Unnamed {
			list = append(list, subjectsIn(kind, v)...)
		}
	}
	return list
}

func subjectsIn(kind keyserver.SubjectKind, v wire.Named) []keyserver.Subject {
	switch value := v.Value.(type) {
	case schema.HexID:
		if kind == keyserver.OwnerSubject {
			return []keyserver.Subject{approval.OfOwner(keyserver.Object{Kind: keyserver.ChangeKind(v.Of), ID: keyserver.ID(value)})}
		}
		return []keyserver.Subject{approval.ByID(kind, keyserver.ID(value))}
	case schema.Base64ID:
		return []keyserver.Subject{approval.ByID(kind, keyserver.ID(value))}
	case schema.DecimalID:
		if v.Home == nil {
			return []keyserver.Subject{approval.ByID(kind, keyserver.ID(value))}
		}
		return []keyserver.Subject{approval.At(kind, keyserver.SystemID(*v.Home), keyserver.ID(value))}
	case schema.SystemID:
		return []keyserver.Subject{approval.OfPeer(keyserver.SystemID(value))}
	case schema.TrustBlob:
		return []keyserver.Subject{approval.OfPeer(value.System)}
	case schema.HiddenLink:
		return []keyserver.Subject{{Kind: kind, Key: value.String()}}
	case schema.DER:
		return ofCertificate(value)
	default:
		panic("httpapi: a " + reflect.TypeOf(v.Value).String() + " identifies no object")
	}
}

// ofCertificate returns two subjects: the stored certificate, and the transport principal that the certificate's owner
// can log in as.
func ofCertificate(der []byte) []keyserver.Subject {
	digest := keyserver.DigestOf(der)
	list := []keyserver.Subject{{Kind: keyserver.CertificateSubject, Key: hex.EncodeToString(digest[:])}}
	if cert, err := x509.ParseCertificate(der); err == nil {
		list = append(list, keyserver.Subject{Kind: keyserver.TransportSubject, Key: pki.SlashName(cert.Subject)})
	}
	return list
}

func subjectOf(l approval.SubjectState) schema.ApprovalSubject {
	out := schema.ApprovalSubject{Kind: string(l.Kind), ID: l.Key, Type: string(l.Type), People: l.People}
	if !l.Withheld {
		out.Changed = &l.Changed
	}
	if l.Found {
		out.Name = &l.Name
	}
	return out
}
