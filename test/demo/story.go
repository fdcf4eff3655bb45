package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capw-dev/cluster-api-provider-windows/test/env"
	"github.com/capw-dev/cluster-api-provider-windows/test/guest"
	"github.com/capw-dev/cluster-api-provider-windows/test/vcsim/control"
)

const (
	namespace    = "default"
	clusterName  = "demo"
	identityName = "vsphere-credentials"
	// patience bounds each chapter; on a busy machine with two processors a chapter takes well under a minute.
	patience = 5 * time.Minute
)

// story is the state that the chapters of the demo share.
type story struct {
	*narrator
	env *env.Environment
	vms *control.Client
}

// run tells the whole story. Whatever happens, nothing is left running.
func run(ctx context.Context, n *narrator, keep bool) (rerr error) {
	n.stepf("Starting a management cluster with Cluster API and CAPW, a workload cluster and a simulated vCenter")
	e, err := env.Start(ctx, env.Options{Progress: n, VCSimArgs: []string{"-clone-delay=2s", "-power-on-delay=500ms"}})
	if err != nil {
		return fmt.Errorf("starting the environment: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	guestsDone := make(chan error, 1)
	defer func() {
		cancel()
		rerr = errors.Join(rerr, <-guestsDone)
		n.stepf("Stopping everything")
		if err := e.Stop(context.WithoutCancel(ctx)); err != nil {
			rerr = errors.Join(rerr, fmt.Errorf("stopping the environment: %w", err))
			return
		}
		n.sayf("every process has ended, %s is removed", e.Dir)
	}()

	s := &story{narrator: n, env: e}
	guests, err := s.prepare(ctx)
	if err != nil {
		guestsDone <- nil
		return err
	}
	go func() { guestsDone <- guests.Run(ctx) }()
	if err := n.follow(ctx, e.Management.Config, e.Workload.Config, e.Management.Client.Scheme()); err != nil {
		return err
	}

	chapters := []func(context.Context) error{s.create, s.scale, s.rollOver, s.remove}
	if keep {
		chapters = []func(context.Context) error{s.create, s.play}
	}
	for _, chapter := range chapters {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	if !keep {
		n.stepf("That is the main job, done in %s", time.Since(n.begin).Round(time.Second))
	}
	return nil
}

// prepare sets up what is there before a user begins: credentials, and Windows in every VM that starts.
func (s *story) prepare(ctx context.Context) (*guest.Simulator, error) {
	vcenter := s.env.VCSim
	s.vms = &control.Client{URL: vcenter.Control}
	endpoint, err := url.Parse(vcenter.URL)
	if err != nil {
		return nil, fmt.Errorf("parsing the vCenter's URL: %w", err)
	}
	endpoint.User = url.UserPassword(vcenter.Username, vcenter.Password)
	if err := s.env.Management.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: identityName},
		StringData: map[string]string{"username": vcenter.Username, "password": vcenter.Password},
	}); err != nil {
		return nil, fmt.Errorf("creating the credentials: %w", err)
	}
	return guest.New(guest.Options{
		VCenter:    endpoint,
		Thumbprint: vcenter.Thumbprint,
		FirstBoot:  2 * time.Second,
		OnEvent: func(e guest.Event) {
			// That its node is Ready is told by the node.
			switch {
			case e.VM == "" || e.Phase == guest.Gone || e.Phase == guest.Running:
			case e.Phase == guest.Joining: // the agent's phase
				s.changed("guest", e.VM, e.Message)
			default:
				s.changed("guest", e.VM, string(e.Phase)+": "+e.Message)
			}
		},
	}), nil
}

// create is the first chapter: readable manifests become Ready nodes.
func (s *story) create(ctx context.Context) error {
	s.stepf("A Cluster with an external control plane, and a MachineDeployment of 3 Windows workers")
	manifests, err := s.generate(ctx)
	if err != nil {
		return err
	}
	s.sayf("clusterctl generate cluster %s --from %s > %s", clusterName, template, manifests)
	if err := s.kubectl(ctx, s.env.Management, "apply", "-f", manifests); err != nil {
		return err
	}
	if err := s.env.ConnectCluster(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}); err != nil {
		return err
	}
	if err := s.awaitNodes(ctx, 3); err != nil {
		return err
	}
	return s.show(ctx)
}

// scale is the second chapter.
func (s *story) scale(ctx context.Context) error {
	s.stepf("Scale to 5")
	if err := s.kubectl(ctx, s.env.Management, "scale", "machinedeployment", deployment, "--replicas=5"); err != nil {
		return err
	}
	if err := s.awaitNodes(ctx, 5); err != nil {
		return err
	}
	return s.kubectl(ctx, s.env.Workload, "get", "nodes")
}

// rollOver is the third chapter: templates are immutable, so a change is a second template.
func (s *story) rollOver(ctx context.Context) error {
	s.stepf("Roll over to a second WindowsMachineTemplate with 8 CPUs")
	if err := s.createSecondTemplate(ctx); err != nil {
		return err
	}
	patch := `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"` + secondTemplate + `"}}}}}`
	if err := s.kubectl(ctx, s.env.Management, "patch", "machinedeployment", deployment, "--type=merge", "-p", patch); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, 5); err != nil {
		return err
	}
	return s.show(ctx)
}

// play keeps everything running for a person.
func (s *story) play(ctx context.Context) error {
	s.stepf("Everything keeps running until Ctrl-C. In another terminal:")
	s.lines(
		"export PATH="+s.env.Assets.Dir+":$PATH",
		"export KUBECONFIG="+s.env.Management.Kubeconfig+"   # the management cluster",
		"kubectl get machines,windowsmachines,windowsconfigs -o wide   # MESSAGE says what is wrong",
		"kubectl scale machinedeployment "+deployment+" --replicas=5",
		"kubectl --kubeconfig "+s.env.Workload.Kubeconfig+" get nodes   # the workload cluster",
		"kubectl get windowsmachinetemplate "+deployment+" -o yaml   # server, thumbprint and names for templates of your own",
		"curl -X POST '"+s.env.VCSim.Control+"/vms/destroy?name=<vm>'   # destroy a VM; its Machine is replaced after about 6 minutes",
		"ls "+s.env.Dir+"/logs "+s.env.Dir+"/demo.yaml",
	)
	<-ctx.Done()
	return nil
}

// remove is the last chapter: everything goes, and is seen to be gone.
func (s *story) remove(ctx context.Context) error {
	s.stepf("Delete the Cluster")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	if err := s.env.Management.Client.Delete(ctx, cluster); err != nil {
		return fmt.Errorf("deleting Cluster: %w", err)
	}
	return s.awaitNothingLeft(ctx)
}
