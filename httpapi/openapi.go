package httpapi

import (
	"reflect"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
)

func openAPI(x *exchange) (any, error) {
	if err := x.decode(wire.Of(reflect.TypeFor[nothing]()), &nothing{}); err != nil {
		return nil, err
	}
	return raw(x.api.openAPI), nil
}
