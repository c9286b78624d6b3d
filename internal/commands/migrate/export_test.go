package migrate

// Tampered has something done to the target once all rows are there.
func (o Options) Tampered(do func() error) Options {
	o.loaded = do
	return o
}
