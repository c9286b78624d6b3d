package keyserver

// Version is the key server's version record.
type Version struct {
	Major, Minor, Build, Edition int
	Banner                       string
}

// Readiness is the state of one part of the key server.
type Readiness struct {
	Part    string
	Ready   bool
	Detail  string
	RetryIn int // seconds until the part is tried again, 0 if there is no retry
}
