package migrate

// Tampered returns options that call do after all rows were copied to the target.
func (o Options) Tampered(do func() error) Options {
	o.loaded = do
	return o
}
