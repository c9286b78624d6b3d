package trust_test

import (
	"context"
)

var ctx = context.Background()
