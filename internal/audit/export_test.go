package audit

// Queued is how many rows wait for somebody to commit them.
func (w *Writer) Queued() int { return len(w.queue) }
