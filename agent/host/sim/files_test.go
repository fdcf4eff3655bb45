package sim_test

import (
	"context"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/capw-dev/cluster-api-provider-windows/agent/host"
	"github.com/capw-dev/cluster-api-provider-windows/agent/host/sim"
)

func TestPathsAreAbsoluteWindowsPaths(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		f := m.Host().Files
		for _, bad := range []string{"", "a", `\a`, "/a", `C:a`, `C:/a`, `C:\a/b`, `C:\a?`, `C:\a:b`, `C:\a.`, `C:\a `, `1:\a`, "C:\\a\x00"} {
			g.Expect(f.Write(ctx, bad, nil, host.ACLInherited)).To(MatchError(host.ErrInvalid), bad)
		}
		g.Expect(f.Write(ctx, `c:\ProgramData\..\\ProgramData\.\a`, []byte("x"), host.ACLInherited)).To(Succeed())
		g.Expect(m.ReadFile(`C:\programdata\A`)).To(BeEquivalentTo("x"))
		g.Expect(f.Write(ctx, `Q:\a`, nil, host.ACLInherited)).To(MatchError(fs.ErrNotExist))
		g.Expect(f.Remove(ctx, `C:\`)).NotTo(Succeed())
	})
}

func TestAVolumeHoldsNoMoreThanItsSizeAndAMediumCannotBeWritten(t *testing.T) {
	o := sim.Options{DiskBytes: 1000, Volumes: []sim.Volume{{
		Volume: host.Volume{Root: `D:\`, Label: "config-2"}, Files: map[string]string{`D:\openstack\latest\user_data`: "script"},
	}}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		h := m.Host()
		big := []byte(strings.Repeat("x", 600))
		g.Expect(h.Files.Write(ctx, `C:\a`, big, host.ACLInherited)).To(Succeed())
		g.Expect(h.Files.Write(ctx, `C:\b`, big, host.ACLInherited)).To(MatchError(sim.ErrDiskFull))
		g.Expect(h.Files.Write(ctx, `C:\a`, big[:300], host.ACLInherited)).To(Succeed(), "replaced")
		w, err := h.Files.Append(ctx, `C:\b`, host.ACLInherited)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Write(big)).To(Equal(600))
		_, err = w.Write(big)
		g.Expect(err).To(MatchError(sim.ErrDiskFull))
		g.Expect(h.Volumes.List(ctx)).To(Equal([]host.Volume{
			{Root: `C:\`, FileSystem: "NTFS", Kind: host.VolumeFixed, TotalBytes: 1000, FreeBytes: 100},
			{Root: `D:\`, FileSystem: "CDFS", Kind: host.VolumeCDROM, Label: "config-2", TotalBytes: 1 << 30},
		}))
		g.Expect(h.Files.Read(ctx, `d:\openstack\latest\user_data`)).To(BeEquivalentTo("script"))
		g.Expect(h.Files.Write(ctx, `D:\openstack\x`, nil, host.ACLInherited)).To(MatchError(fs.ErrPermission))
		g.Expect(h.Files.Remove(ctx, `D:\openstack`)).To(MatchError(fs.ErrPermission))
		m.PowerOff() // loses a half of what was appended
		m.PowerOn(ctx)
		volumes, err := m.Host().Volumes.List(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(volumes[0].FreeBytes).To(BeEquivalentTo(400))
	})
}

func TestAProgramThatRunsStaysWhereItsFolderIsRemoved(t *testing.T) {
	o := sim.Options{Programs: programs(serve), Services: []host.Service{demo("a", automatic)}, Files: map[string]string{`C:\k\more`: ""}}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		f := m.Host().Files
		g.Expect(f.Remove(ctx, `C:\k`)).To(MatchError(fs.ErrPermission))
		g.Expect(m.Files()).To(ContainElement(demoExe))
		g.Expect(m.Files()).NotTo(ContainElement(`C:\k\more`))
		_, err := f.Append(ctx, demoExe, host.ACLInherited)
		g.Expect(err).To(MatchError(fs.ErrPermission))
		g.Expect(m.Host().Services.Stop(ctx, "a")).To(Succeed())
		g.Expect(f.Remove(ctx, `C:\k`)).To(Succeed())
	})
}

func TestAccessControlIsInheritedFromTheFolderThatASetsIt(t *testing.T) {
	inBubble(t, sim.Options{}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		f := m.Host().Files
		g.Expect(f.Mkdir(ctx, `C:\secret`, host.ACLSystem)).To(Succeed())
		g.Expect(f.Mkdir(ctx, `C:\secret\deep`, host.ACLInherited)).To(Succeed())
		g.Expect(f.Write(ctx, `C:\secret\deep\f`, nil, host.ACLInherited)).To(Succeed())
		g.Expect(m.EffectiveACL(`C:\secret\deep\f`)).To(Equal(host.ACLSystem))
		g.Expect(f.SetACL(ctx, `C:\secret\deep`, host.ACLUsersRead)).To(Succeed())
		g.Expect(m.EffectiveACL(`C:\secret\deep\f`)).To(Equal(host.ACLUsersRead))
		g.Expect(f.ACL(ctx, `C:\secret\deep\f`)).To(Equal(host.ACLInherited))
	})
}

func TestFaultsHitReadsAndWritesOfOpenFiles(t *testing.T) {
	inBubble(t, sim.Options{Files: map[string]string{`C:\f`: "content"}}, func(g *WithT, ctx context.Context, m *sim.Machine) {
		fail := map[string]sim.FaultKind{}
		m.SetInject(func(c sim.Call) sim.Fault { return sim.Fault{Kind: fail[c.Op]} })
		f := m.Host().Files
		fail["File.Read"] = sim.Fail
		r, err := f.Open(ctx, `C:\f`)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = io.ReadAll(r)
		g.Expect(err).To(HaveOccurred())
		w, err := f.Append(ctx, `C:\f`, host.ACLInherited)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Write([]byte("+more"))).To(Equal(5))
		fail["File.Close"] = sim.PowerCutBefore
		g.Expect(w.Close()).To(MatchError(sim.ErrPowerLost))
		g.Expect(m.ReadFile(`C:\f`)).To(BeEquivalentTo("content+m"))
		m.PowerOn(ctx)
		fail = map[string]sim.FaultKind{"File.Write": sim.KillAfter}
		w, err = m.Host().Files.Append(ctx, `C:\f`, host.ACLInherited)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = w.Write([]byte("!!"))
		g.Expect(err).To(MatchError(sim.ErrKilled))
		m.PowerOff()
		g.Expect(m.ReadFile(`C:\f`)).To(BeEquivalentTo("content+m!!"), "Windows closes what a dead process had open")
	})
}

func TestAProgramDiesWithTheProcessThatRunsIt(t *testing.T) {
	var told story
	o := sim.Options{
		Services: []host.Service{demo("a", automatic)},
		Programs: map[string]sim.Program{
			demoExe: func(ctx context.Context, p *sim.Process) int {
				p.Running()
				if _, err := p.Host.Processes.Run(ctx, host.Command{Argv: []string{`C:\k\child.exe`}}); err != nil {
					told.add("parent: " + err.Error())
				}
				return 1
			},
			`C:\k\child.exe`: func(ctx context.Context, p *sim.Process) int {
				<-ctx.Done()
				told.add("child: " + context.Cause(ctx).Error())
				return 0
			},
		},
	}
	inBubble(t, o, func(g *WithT, ctx context.Context, m *sim.Machine) {
		g.Expect(m.KillService("a")).To(BeTrue())
		synctest.Wait()
		g.Expect(told.told()).To(ConsistOf("parent: "+sim.ErrKilled.Error(), "child: "+sim.ErrKilled.Error()))
		g.Expect(m.Host().Files.Remove(ctx, `C:\k\child.exe`)).To(Succeed())
	})
}
