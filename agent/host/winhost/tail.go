package winhost

// tail is a writer that keeps the end of what is written to it.
type tail struct {
	limit int
	kept  []byte
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n >= t.limit {
		t.kept = append(t.kept[:0], p[n-t.limit:]...)
		return n, nil
	}
	if over := len(t.kept) + n - t.limit; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	t.kept = append(t.kept, p...)
	return n, nil
}
