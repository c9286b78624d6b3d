package audit

// Queued returns the number of rows that wait for a commit.
func (w *Writer) Queued() int { return len(w.queue) }
