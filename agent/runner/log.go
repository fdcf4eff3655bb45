package runner

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	nodev1 "github.com/capw-dev/cluster-api-provider-windows/api/node/v1alpha1"
)

const (
	// pendingBytes is how much may wait for the disk.
	pendingBytes = 2 << 20
	// reopenAfter is the pause after a failure before the file is tried again.
	reopenAfter = 5 * time.Second
	// pruneEvery is how often rotated files are looked at for their age.
	pruneEvery = time.Hour
	// closeTime is how long Close waits for a disk that does not answer.
	closeTime = 5 * time.Second
	// stampLayout is the time in the name of a rotated file, in UTC.
	stampLayout = "20060102T150405.000"
)

// Log is a log file that is rotated while it is written.
//
// It never fails and never blocks its writer: what the disk does not take, because it is full or hangs, is dropped, and a
// line in the log tells how much was lost once it works again.
//
// Rotated files are beside it: kubelet.log becomes kubelet-20261130T081500.000.log.
type Log struct {
	path     string
	rotation nodev1.LogRotation
	wake     chan struct{}
	quit     chan struct{}
	done     chan struct{}
	lost     atomic.Int64

	mu      sync.Mutex
	pending []byte

	// Of the goroutine that writes.
	file     *os.File
	size     int64
	told     int64     // of lost, what the log says
	cause    error     // of the last loss
	retryAt  time.Time // of opening it
	rotateAt time.Time // of rotating it, after a failure
	rename   func(from, to string) error
}

// OpenLog returns a log at path, a path of the system that this runs on. Its folder is made with the first line.
func OpenLog(path string, rotation nodev1.LogRotation) *Log {
	l := &Log{
		path: path, rotation: rotation, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		rename: os.Rename,
	}
	go l.run()
	return l
}

// Write implements io.Writer. It takes all of p and returns no error.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	if len(l.pending)+len(p) > pendingBytes {
		l.lost.Add(int64(len(p)))
	} else {
		l.pending = append(l.pending, p...)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *Log) waiting() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending
}

// Lost returns how many bytes were dropped.
func (l *Log) Lost() int64 { return l.lost.Load() }

// Close writes what waits, as far as the disk takes it in a few seconds. Nothing may be written any more.
func (l *Log) Close() {
	close(l.quit)
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}

func (l *Log) run() {
	defer close(l.done)
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	l.prune()
	var taken []byte
	for quit := false; !quit; {
		select {
		case <-l.wake:
		case <-l.quit:
			quit = true
		case <-prune.C:
			l.prune()
		}
		l.mu.Lock()
		taken, l.pending = l.pending, taken[:0]
		l.mu.Unlock()
		l.take(taken)
	}
	l.closeFile()
}

// take writes a chunk, and rotates the file at the end of a line if it becomes too large.
func (l *Log) take(p []byte) {
	if len(p) == 0 {
		return
	}
	if !l.open() {
		l.drop(p, l.cause)
		return
	}
	limit := l.maxSize()
	for limit > 0 && l.size+int64(len(p)) > limit && !time.Now().Before(l.rotateAt) {
		room := min(max(limit-l.size, 0), int64(len(p)))
		end := bytes.LastIndexByte(p[:room], '\n') + 1
		if end == 0 && l.size == 0 { // a line longer than a file
			end = int(room)
		}
		l.write(p[:end])
		p = p[end:]
		if !l.rotate() {
			break
		}
		if !l.open() {
			l.drop(p, l.cause)
			return
		}
	}
	l.write(p)
}

func (l *Log) write(p []byte) {
	if len(p) == 0 {
		return
	}
	if l.file == nil {
		l.drop(p, l.cause)
		return
	}
	if limit := 2 * l.maxSize(); limit > 0 && l.size+int64(len(p)) > limit {
		l.drop(p, errors.New("the file cannot be rotated"))
		return
	}
	if lost := l.lost.Load(); lost > l.told {
		reason := "the disk was too slow"
		if l.cause != nil {
			reason = l.cause.Error()
		}
		note := fmt.Appendf(nil, "[capw-node] %d bytes of output before this line were not written: %s\n", lost-l.told, reason)
		if n, err := l.file.Write(note); err == nil {
			l.size += int64(n)
			l.told, l.cause = lost, nil
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	if err != nil {
		l.drop(p[n:], err)
		l.closeFile()
		l.retryAt = time.Now().Add(reopenAfter)
	}
}

// maxSize is when it is rotated; a file that cannot be rotated never grows to more than twice of it. 0: never.
func (l *Log) maxSize() int64 { return int64(l.rotation.MaxSizeMiB) << 20 }

func (l *Log) drop(p []byte, why error) {
	if len(p) > 0 {
		l.lost.Add(int64(len(p)))
		l.cause = why
	}
}

func (l *Log) open() bool {
	if l.file != nil {
		return true
	}
	if time.Now().Before(l.retryAt) {
		return false
	}
	file, size, err := openFile(l.path)
	if err != nil {
		l.cause = err
		l.retryAt = time.Now().Add(reopenAfter)
		return false
	}
	l.file, l.size = file, size
	return true
}

func openFile(path string) (*os.File, int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // a log
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (l *Log) closeFile() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// rotate gives the file its new name. If that fails, as somebody holds it open, it is written further and tried again later.
func (l *Log) rotate() bool {
	l.closeFile() // Windows renames no open file
	stamp := time.Now().UTC()
	to := l.rotated(stamp)
	for _, err := os.Lstat(to); err == nil; _, err = os.Lstat(to) {
		stamp = stamp.Add(time.Millisecond)
		to = l.rotated(stamp)
	}
	if err := l.rename(l.path, to); err != nil {
		l.rotateAt = time.Now().Add(reopenAfter)
		l.open()
		return false
	}
	l.prune()
	return true
}

func (l *Log) rotated(at time.Time) string {
	ext := filepath.Ext(l.path)
	return strings.TrimSuffix(l.path, ext) + "-" + at.Format(stampLayout) + ext
}

// prune removes rotated files that are too many or too old.
func (l *Log) prune() {
	entries, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil {
		return
	}
	type rotated struct {
		name string
		at   time.Time
	}
	var files []rotated
	for _, e := range entries {
		if at, ok := RotatedAt(filepath.Base(l.path), e.Name()); ok {
			files = append(files, rotated{e.Name(), at})
		}
	}
	slices.SortFunc(files, func(a, b rotated) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.name, b.name)) })
	for i, f := range files {
		tooMany := l.rotation.MaxFiles > 0 && i >= int(l.rotation.MaxFiles)
		tooOld := l.rotation.MaxAgeHours > 0 && time.Since(f.at) > time.Duration(l.rotation.MaxAgeHours)*time.Hour
		if tooMany || tooOld {
			_ = os.Remove(filepath.Join(filepath.Dir(l.path), f.name)) // the next time, if somebody holds it
		}
	}
}

// RotatedAt says whether name is a rotated file of the log that is named log, and when that was.
func RotatedAt(log, name string) (time.Time, bool) {
	ext := filepath.Ext(log)
	stamp, ok := strings.CutPrefix(name, strings.TrimSuffix(log, ext)+"-")
	if !ok {
		return time.Time{}, false
	}
	stamp, ok = strings.CutSuffix(stamp, ext)
	at, err := time.Parse(stampLayout, stamp)
	return at, ok && err == nil
}
