package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/capw-dev/cluster-api-provider-windows/agent/codes"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/layout"
)

// Journal is what the agent remembers about this machine. It holds no secrets.
type Journal struct {
	// Document is the SHA-256 of the node document that the machine was given, in lower-case hexadecimal digits.
	Document string `json:"document"`
	// Started is when the first boot began, by the machine's clock of that time.
	Started time.Time `json:"started"`
	// Spent is how long the agent has worked on the first boot, over all boots. The deadline is measured against it and not
	// against the clock, which jumps when a new machine first sees a time server.
	Spent time.Duration `json:"spent"`
	// BootID of the last boot that the agent saw, Boots how many.
	BootID string `json:"bootID,omitempty"`
	Boots  int32  `json:"boots,omitempty"`
	// Reboots that the agent has asked for; RebootFrom is the boot that the last one shall end.
	Reboots    int32  `json:"reboots,omitempty"`
	RebootFrom string `json:"rebootFrom,omitempty"`
	// Asked is how often starts of the agent have asked for that reboot again.
	Asked int32 `json:"asked,omitempty"`
	// Phases that are done, in order, with the time each took over all boots.
	Phases []PhaseRecord `json:"phases,omitempty"`
	// Failure ended the first boot; nil while it goes on and after success.
	Failure *Failure `json:"failure,omitempty"`
	// Done says that the first boot succeeded.
	Done bool `json:"done,omitempty"`
	// Facts of the steps.
	Facts Facts `json:"facts"`
}

// PhaseRecord is a phase that is done or runs.
type PhaseRecord struct {
	Name  string        `json:"name"`
	Spent time.Duration `json:"spent"`
	Done  bool          `json:"done,omitempty"`
}

// Failure is why a first boot ended.
type Failure struct {
	Code    codes.Code `json:"code"`
	Phase   string     `json:"phase"`
	Step    string     `json:"step"`
	Message string     `json:"message"`
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s %s: %s, %s: %s", f.Code, codes.Lookup(f.Code).Name, f.Phase, f.Step, f.Message)
}

// PhaseDone says whether a phase is done.
func (j *Journal) PhaseDone(name string) bool {
	return slices.ContainsFunc(j.Phases, func(p PhaseRecord) bool { return p.Name == name && p.Done })
}

// phase returns the record of a phase, made if there is none.
func (j *Journal) phase(name string) *PhaseRecord {
	for i := range j.Phases {
		if j.Phases[i].Name == name {
			return &j.Phases[i]
		}
	}
	j.Phases = append(j.Phases, PhaseRecord{Name: name})
	return &j.Phases[len(j.Phases)-1]
}

// envelope protects a journal against what a file system may do to it at a power cut in spite of all promises.
type envelope struct {
	SHA256  string          `json:"sha256"`
	Journal json.RawMessage `json:"journal"`
}

// LoadJournal reads the journal, or the one before if it is damaged. The error is fs.ErrNotExist if there is none, and has
// code JournalUnreadable if neither can be read.
func LoadJournal(ctx context.Context, files host.Files) (*Journal, error) {
	j, err := loadJournal(ctx, files, layout.Journal)
	if err == nil {
		return j, nil
	}
	// Only a journal that is damaged, or gone, is worse than the one before. One that cannot be read now may be read soon.
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return nil, codes.New(codes.JournalUnreadable, "%w", err)
	}
	backup, backupErr := loadJournal(ctx, files, layout.JournalBackup)
	if backupErr == nil {
		return backup, nil
	}
	if errors.Is(err, fs.ErrNotExist) && errors.Is(backupErr, fs.ErrNotExist) {
		return nil, err
	}
	return nil, codes.New(codes.JournalUnreadable, "reading the journal: %w, and its backup: %w", err, backupErr)
}

func loadJournal(ctx context.Context, files host.Files, path string) (*Journal, error) {
	raw, err := files.Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	inner, err := unwrap(raw)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	j := &Journal{}
	if err := json.Unmarshal(inner, j); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	return j, nil
}

// ErrDamaged says that a journal is there, and not as it was written. What was done before is unknown then.
var ErrDamaged = errors.New("the file is damaged")

// unwrap returns the journal in an envelope that is not damaged.
func unwrap(raw []byte) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if sum := checksum(e.Journal); sum != e.SHA256 {
		return nil, fmt.Errorf("%w: its checksum is %s instead of %s", ErrDamaged, sum, e.SHA256)
	}
	return e.Journal, nil
}

// SaveJournal makes the journal durable, and keeps the one before. The state folder must exist.
func SaveJournal(ctx context.Context, files host.Files, j *Journal) error {
	raw, err := json.Marshal(j)
	if err == nil {
		raw, err = json.Marshal(envelope{SHA256: checksum(raw), Journal: raw})
	}
	if err != nil {
		return codes.New(codes.StateNotWritable, "encoding the journal: %w", err)
	}
	// Only a good journal becomes the backup. An atomic rename between the two writes would leave a moment without journal.
	if before, err := files.Read(ctx, layout.Journal); err == nil && !bytes.Equal(before, raw) {
		if _, err := unwrap(before); err == nil {
			if err := files.Write(ctx, layout.JournalBackup, before, host.ACLSystem); err != nil {
				return codes.New(codes.StateNotWritable, "writing %s: %w", layout.JournalBackup, err)
			}
		}
	}
	if err := files.Write(ctx, layout.Journal, raw, host.ACLSystem); err != nil {
		return codes.New(codes.StateNotWritable, "writing %s: %w", layout.Journal, err)
	}
	return nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
