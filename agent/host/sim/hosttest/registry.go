package hosttest

import (
	"context"
	"testing"

	. "github.com/onsi/gomega" //nolint:staticcheck // as in tests

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
)

func (s *suite) registry(t *testing.T) {
	s.runWithKey(t, "returns values of every type as they were set", func(e *env, key string) {
		for name, v := range map[string]host.Value{
			"":        host.StringValue("the key's default value"),
			"string":  host.StringValue("ä text"),
			"empty":   host.StringValue(""),
			"expand":  {Type: host.ExpandString, Text: `%SystemRoot%\x`},
			"multi":   {Type: host.MultiString, Texts: []string{"one", "two"}},
			"dword":   host.DWordValue(1<<32 - 1),
			"qword":   {Type: host.QWord, Number: 1<<63 + 1},
			"binary":  {Type: host.Binary, Bytes: []byte{0, 1, 255}},
			"string2": host.StringValue("replaced below"),
		} {
			e.succeed(e.Registry.Set(e.ctx, key, name, v))
			got, err := e.Registry.Get(e.ctx, key, name)
			e.succeed(err)
			e.Expect(got).To(Equal(v), name)
		}
		e.succeed(e.Registry.Set(e.ctx, key, "string2", host.DWordValue(2)))
		e.Expect(e.Registry.Get(e.ctx, key, "STRING2")).To(Equal(host.DWordValue(2)))
	})
	s.runWithKey(t, "finds keys and values whatever their case, and lists them as they were written", func(e *env, key string) {
		e.succeed(e.Registry.Set(e.ctx, key+`\Sub\Deep`, "B", host.DWordValue(1)))
		e.succeed(e.Registry.Set(e.ctx, key+`\SUB\deep`, "b", host.DWordValue(2)))
		e.succeed(e.Registry.Set(e.ctx, key+`\Sub\Deep`, "A", host.DWordValue(3)))
		e.succeed(e.Registry.Set(e.ctx, key+`\Other`, "x", host.DWordValue(3)))
		values, subkeys, err := e.Registry.Names(e.ctx, key+`\sub\DEEP`)
		e.succeed(err)
		e.Expect(values).To(Equal([]string{"A", "B"}))
		e.Expect(subkeys).To(BeEmpty())
		values, subkeys, err = e.Registry.Names(e.ctx, key)
		e.succeed(err)
		e.Expect(values).To(BeEmpty())
		e.Expect(subkeys).To(Equal([]string{"Other", "Sub"}))
		e.Expect(e.Registry.Get(e.ctx, key+`\sub\deep`, "B")).To(Equal(host.DWordValue(2)))
	})
	s.runWithKey(t, "says what is not found, and deletes it all the same", func(e *env, key string) {
		_, err := e.Registry.Get(e.ctx, key+`\none`, "x")
		e.Expect(err).To(MatchError(host.ErrNotFound))
		_, _, err = e.Registry.Names(e.ctx, key+`\none`)
		e.Expect(err).To(MatchError(host.ErrNotFound))
		e.succeed(e.Registry.Set(e.ctx, key, "x", host.DWordValue(1)))
		_, err = e.Registry.Get(e.ctx, key, "y")
		e.Expect(err).To(MatchError(host.ErrNotFound))
		e.succeed(e.Registry.Delete(e.ctx, key, "X"))
		e.succeed(e.Registry.Delete(e.ctx, key, "x"))
		e.succeed(e.Registry.Delete(e.ctx, key+`\none`, "x"))
		_, err = e.Registry.Get(e.ctx, key, "x")
		e.Expect(err).To(MatchError(host.ErrNotFound))
		values, _, err := e.Registry.Names(e.ctx, key)
		e.succeed(err)
		e.Expect(values).To(BeEmpty(), "the key stays")
	})
	s.runWithKey(t, "deletes a key with all below it", func(e *env, key string) {
		e.succeed(e.Registry.Set(e.ctx, key+`\a\b\c`, "x", host.DWordValue(1)))
		e.succeed(e.Registry.Set(e.ctx, key+`\ab`, "x", host.DWordValue(1)))
		e.succeed(e.Registry.DeleteKey(e.ctx, key+`\A`))
		e.succeed(e.Registry.DeleteKey(e.ctx, key+`\A`))
		_, subkeys, err := e.Registry.Names(e.ctx, key)
		e.succeed(err)
		e.Expect(subkeys).To(Equal([]string{"ab"}))
	})
	s.runWithKey(t, "refuses what is no key and no value", func(e *env, key string) {
		e.Expect(e.Registry.Set(e.ctx, `SOFTWARE\x`, "x", host.DWordValue(1))).To(MatchError(host.ErrInvalid))
		e.Expect(e.Registry.Set(e.ctx, key, "x", host.Value{Type: host.DWord, Number: 1 << 32})).To(MatchError(host.ErrInvalid))
		e.Expect(e.Registry.Set(e.ctx, key, "x", host.Value{Type: "Other"})).To(MatchError(host.ErrInvalid))
	})
}

func (s *suite) runWithKey(t *testing.T, behaviour string, test func(e *env, key string)) {
	t.Helper()
	s.run(t, behaviour, func(e *env) {
		key := `HKLM\SOFTWARE\` + e.id
		e.succeed(e.Registry.DeleteKey(e.ctx, key))
		e.cleanUp(func(ctx context.Context) error { return e.Registry.DeleteKey(ctx, key) })
		test(e, key)
	})
}
