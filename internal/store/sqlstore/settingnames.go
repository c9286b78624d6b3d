package sqlstore

import (
	"context"
	"errors"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Names of the settings that the first start of a key server writes.
const (
	SettingSystem            = "systemId"
	SettingDeployment        = "deployment"
	SettingServerCertificate = "serverCertificate"
	SettingServerKey         = "serverKey"
	SettingAuditKey          = "auditKey"   // signs the checkpoints of the audit tree
	SettingWitnessKey        = "witnessKey" // cosigns checkpoints of other logs
)

// RequiredSettings are the settings without which an existing key server does not start.
var RequiredSettings = []string{SettingSystem, SettingDeployment, SettingServerCertificate, SettingServerKey, SettingAuditKey}

// WrappedSettings has the settings that contain a private key, each with the id under which the key is wrapped. No
// other key has one of these ids, because ids of keys are random. Older versions wrapped their only CA under the id 1.
var WrappedSettings = map[string]keyserver.ID{
	SettingServerKey:  values.IDFromUint64(2),
	SettingAuditKey:   values.IDFromUint64(3),
	SettingWitnessKey: values.IDFromUint64(4),
}

// SystemOf reads the system id of an existing key server from a Store or a Tx.
func SystemOf(ctx context.Context, in interface {
	Setting(ctx context.Context, name string) ([]byte, error)
}) (keyserver.SystemID, error) {
	text, err := in.Setting(ctx, SettingSystem)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		return 0, errors.New("the database's system id is not a number; restore the database from a backup")
	}
	return keyserver.SystemID(n), nil
}
