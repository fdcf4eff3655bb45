package vcsim_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim"
)

func start(t *testing.T) (*vcsim.Server, *govmomi.Client) {
	t.Helper()
	g := NewWithT(t)
	s, err := vcsim.Start(vcsim.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Close)
	u, err := soap.ParseURL(s.URL())
	g.Expect(err).NotTo(HaveOccurred())
	u.User = url.UserPassword(s.Username, s.Password)
	c, err := govmomi.NewClient(t.Context(), u, true)
	g.Expect(err).NotTo(HaveOccurred())
	return s, c
}

// clone clones the template and waits.
func clone(ctx context.Context, c *govmomi.Client, name string, spec types.VirtualMachineCloneSpec) error {
	f := find.NewFinder(c.Client)
	template, err := f.VirtualMachine(ctx, vcsim.Template)
	if err != nil {
		return err
	}
	folder, err := f.Folder(ctx, "/DC0/vm")
	if err != nil {
		return err
	}
	pool, err := f.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		return err
	}
	ref := pool.Reference()
	spec.Location.Pool = &ref
	task, err := template.Clone(ctx, folder, name, spec)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

func TestACloneAppliesItsWholeSpecificationAndInheritsTheRest(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t)
	cores := int32(2)
	g.Expect(clone(t.Context(), c, "vm", types.VirtualMachineCloneSpec{Config: &types.VirtualMachineConfigSpec{
		NumCPUs: 8, NumCoresPerSocket: &cores, Annotation: "hello",
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "a", Value: "b"}},
	}})).To(Succeed())
	h, err := s.Hardware(t.Context(), "vm")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.NumCPU).To(BeEquivalentTo(8))
	g.Expect(h.CoresPerSocket).To(BeEquivalentTo(2))
	g.Expect(h.MemoryMiB).To(BeEquivalentTo(4096))
	g.Expect(h.Firmware).To(Equal("efi"))
	g.Expect(s.VMs()[0].Config).To(HaveKeyWithValue("a", "b"))
	g.Expect(s.VMs()[0].PowerState).To(Equal("poweredOff"))
}

func TestACloneThatFailsLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t)
	err := clone(t.Context(), c, "vm", types.VirtualMachineCloneSpec{Config: &types.VirtualMachineConfigSpec{
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: 4711}},
		}},
	}})
	g.Expect(fault.Is(err, &types.InvalidDeviceSpec{})).To(BeTrue(), "got %v", err)
	g.Expect(s.VMs()).To(BeEmpty())
}

func TestClonesOfOneTemplateRunAtTheSameTime(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t)
	s.SetDelays(vcsim.Delays{Clone: time.Second})
	begin := time.Now()
	done := make(chan error, 5)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		go func() { done <- clone(t.Context(), c, name, types.VirtualMachineCloneSpec{PowerOn: true}) }()
	}
	for range 5 {
		g.Expect(<-done).To(Succeed())
	}
	g.Expect(time.Since(begin)).To(BeNumerically("<", 3*time.Second))
	g.Expect(s.VMs()).To(HaveLen(5))
}

func TestARequestCanBeRefusedAndCarriedOutWithoutAnAnswer(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t)
	index := object.NewSearchIndex(c.Client)
	s.ResetCalls()
	s.OnRequest(vcsim.Times(1, "FindByInventoryPath", vcsim.Action{Fault: &types.NoPermission{PrivilegeId: "System.View"}}))
	_, err := index.FindByInventoryPath(t.Context(), "/DC0")
	var denied *types.NoPermission
	_, ok := fault.As(err, &denied)
	g.Expect(ok).To(BeTrue(), "got %v", err)
	g.Expect(denied.PrivilegeId).To(Equal("System.View"))
	_, err = index.FindByInventoryPath(t.Context(), "/DC0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Calls()).To(Equal(vcsim.Calls{Total: 2, Methods: map[string]int{"FindByInventoryPath": 2}}))

	s.OnRequest(vcsim.Times(1, "CreateFolder", vcsim.Action{DropAnswer: true}))
	root := object.NewRootFolder(c.Client)
	_, err = root.CreateFolder(t.Context(), "f")
	g.Expect(err).To(HaveOccurred())
	found, err := index.FindByInventoryPath(t.Context(), "/f")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).NotTo(BeNil())
}

func TestALoginNeedsThePassword(t *testing.T) {
	g := NewWithT(t)
	s, _ := start(t)
	u, err := soap.ParseURL(s.URL())
	g.Expect(err).NotTo(HaveOccurred())
	u.User = url.UserPassword(s.Username, "wrong")
	_, err = govmomi.NewClient(t.Context(), u, true)
	g.Expect(fault.Is(err, &types.InvalidLogin{})).To(BeTrue(), "got %v", err)
}

func TestItCanBeControlledFromAnotherProcess(t *testing.T) {
	g := NewWithT(t)
	s, _ := start(t)
	control := httptest.NewServer(s.Control())
	t.Cleanup(control.Close)
	call := func(method, path string, into any) int {
		req, err := http.NewRequestWithContext(t.Context(), method, control.URL+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		res, err := http.DefaultClient.Do(req)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = res.Body.Close() }()
		if into != nil {
			g.Expect(json.NewDecoder(res.Body).Decode(into)).To(Succeed())
		}
		return res.StatusCode
	}
	g.Expect(call(http.MethodPost, "/vms/foreign?name=w1", nil)).To(Equal(http.StatusOK))
	var vms []vcsim.VM
	g.Expect(call(http.MethodGet, "/vms", &vms)).To(Equal(http.StatusOK))
	g.Expect(vms).To(HaveLen(1))
	g.Expect(vms[0].PowerState).To(Equal("poweredOn"))
	g.Expect(call(http.MethodPost, "/vms/poweroff?name=w1", nil)).To(Equal(http.StatusOK))
	g.Expect(call(http.MethodPost, "/vms/destroy?name=w1", nil)).To(Equal(http.StatusOK))
	g.Expect(call(http.MethodPost, "/vms/destroy?name=w1", nil)).To(Equal(http.StatusInternalServerError))
	g.Expect(s.VMs()).To(BeEmpty())
	g.Expect(call(http.MethodPost, "/sessions/end", nil)).To(Equal(http.StatusOK))
	g.Expect(s.Sessions()).To(BeEmpty())
	g.Expect(call(http.MethodPost, "/delays?clone=nonsense", nil)).To(Equal(http.StatusInternalServerError))
	var calls vcsim.Calls
	g.Expect(call(http.MethodGet, "/calls", &calls)).To(Equal(http.StatusOK))
	g.Expect(calls.Methods).To(HaveKeyWithValue("Login", 1))
}
