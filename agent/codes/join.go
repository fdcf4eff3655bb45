package codes

// Codes of phase Join.
const (
	EndpointUnreachable    Code = "CAPW-0701"
	ServingCertificate     Code = "CAPW-0702"
	ServingCertificateTime Code = "CAPW-0703"
	ClusterInfoMissing     Code = "CAPW-0704"
	ClusterInfoInvalid     Code = "CAPW-0705"
	TokenUnknown           Code = "CAPW-0706"
	SignatureInvalid       Code = "CAPW-0707"
	CAHashMismatch         Code = "CAPW-0708"
	TokenRefused           Code = "CAPW-0709"
	KubeletConfigReading   Code = "CAPW-0710"
	KubeletConfigRefused   Code = "CAPW-0711"
	KubeletFlagRefused     Code = "CAPW-0712"
	NodeLabelRefused       Code = "CAPW-0713"
	NodeNameTaken          Code = "CAPW-0714"
	NodeNameNotFree        Code = "CAPW-0715"
	JoinFilesNotWritten    Code = "CAPW-0716"
	KubeletNotStopped      Code = "CAPW-0717"
	KubeletEnds            Code = "CAPW-0718"
	CertificateNotIssued   Code = "CAPW-0719"
	KubeletUnhealthy       Code = "CAPW-0720"
	NodeNotRegistered      Code = "CAPW-0721"
	NodeIdentityRefused    Code = "CAPW-0722"
	ProviderIDDiffers      Code = "CAPW-0723"
	KubeadmMissing         Code = "CAPW-0724"
	KubeadmPreflight       Code = "CAPW-0725"
	KubeadmFailed          Code = "CAPW-0726"
	KubeadmConfigRefused   Code = "CAPW-0727"
	KubeadmFlagsUnusable   Code = "CAPW-0728"
	KubeletServiceNotMade  Code = "CAPW-0729"
	TokenMissing           Code = "CAPW-0730"
)

func joinCodes() []Info {
	return []Info{
		{EndpointUnreachable, "EndpointUnreachable", Retryable, "The API server does not answer at the endpoint of the document.",
			"Check the load balancer and the firewall between this node's network and the endpoint, and HTTPS_PROXY and NO_PROXY of the machine."},
		{ServingCertificate, "ServingCertificate", Retryable, "The API server's certificate is not one of the pinned CA for this endpoint.",
			"Add the endpoint's name or address to the API server's certificate, or let the load balancer pass TLS through."},
		{ServingCertificateTime, "ServingCertificateTime", Retryable, "The API server's certificate is not valid at the time that this machine's clock shows.",
			"Correct the clock: set os.ntpServers, or let the hypervisor set it. If the clock is right, renew the certificate."},
		{ClusterInfoMissing, "ClusterInfoMissing", Retryable, "ConfigMap kube-public/cluster-info cannot be read anonymously.",
			"Run \"kubeadm init phase bootstrap-token\" on a control plane node; the API server needs anonymous authentication for this one object."},
		{ClusterInfoInvalid, "ClusterInfoInvalid", Retryable, "ConfigMap kube-public/cluster-info holds no usable kubeconfig, or changes while it is read.",
			"Compare its kubeconfig with that of another cluster; \"kubeadm init phase bootstrap-token\" writes it anew."},
		{TokenUnknown, "TokenUnknown", Retryable, "cluster-info is not signed for this token: the cluster does not know it, it has expired, or it is not signed yet.",
			"The controller renews the token until the node has joined: check that it reaches the workload cluster, and that kube-controller-manager runs bootstrapsigner. Else replace the Machine."},
		{SignatureInvalid, "SignatureInvalid", Terminal, "The signature of cluster-info was not made with this token's secret: this may be another cluster, or an attack.",
			"Check that the endpoint leads to the right cluster, then replace the Machine."},
		{CAHashMismatch, "CAHashMismatch", Terminal, "The cluster's CA is not the pinned one: this is another cluster, its CA was replaced, or it is an attack.",
			"Check that the endpoint leads to the right cluster. After a rotation of its CA, replace the Machine."},
		{TokenRefused, "TokenRefused", Retryable, "The API server refuses the bootstrap token, or forbids what joining nodes must read.",
			"Check that the token Secret in kube-system exists and that group system:bootstrappers:kubeadm:default-node-token has kubeadm's roles (\"kubeadm init phase bootstrap-token\", \"kubeadm init phase upload-config kubelet\")."},
		{KubeletConfigReading, "KubeletConfigReading", Retryable, "ConfigMap kube-system/kubelet-config cannot be read or understood.",
			"The message says why; \"kubeadm init phase upload-config kubelet\" writes it anew."},
		{KubeletConfigRefused, "KubeletConfigRefused", Terminal, "kubelet.config of the document sets something that a kubelet on Windows, or this agent, does not accept.",
			"The message names the field. Change the WindowsConfig and replace the Machine. Taints belong into node.taints."},
		{KubeletFlagRefused, "KubeletFlagRefused", Terminal, "kubelet.extraArgs of the document holds a flag that the agent sets itself, or something that is no flag.",
			"The message names it. Write each as --name=value. Taints belong into node.taints, the provider ID into node.providerID."},
		{NodeLabelRefused, "NodeLabelRefused", Terminal, "The kubelet may not set one of the labels on its own Node.",
			"The message names it. Set labels of kubernetes.io and k8s.io through Machine labels instead, which Cluster API syncs."},
		{NodeNameTaken, "NodeNameTaken", Terminal, "Another machine is a Ready Node of this name already.",
			"Find the machine with the system UUID in the message. Delete the Node if it should not be there, then replace the Machine."},
		{NodeNameNotFree, "NodeNameNotFree", Retryable, "A Node of this name, of another machine that is not Ready, still exists.",
			"It is waited for its deletion. Delete the Node if its machine is gone."},
		{JoinFilesNotWritten, "JoinFilesNotWritten", Retryable, "The files of the join cannot be read, written or removed.",
			"Check free space on C: and the access control of C:\\etc\\kubernetes and C:\\var\\lib\\kubelet."},
		{KubeletNotStopped, "KubeletNotStopped", Retryable, "A kubelet of the image, or of a join that was not finished, cannot be stopped.",
			"The message holds the answer of the service control manager. Remove the kubelet service from the image."},
		{KubeletEnds, "KubeletEnds", Retryable, "The kubelet starts and ends again.",
			"The message holds its last error. If it names a flag or a field, correct kubelet.config or kubelet.extraArgs; see C:\\var\\log\\kubelet\\kubelet.log."},
		{CertificateNotIssued, "CertificateNotIssued", Retryable, "The kubelet has no client certificate yet: its CertificateSigningRequest is pending or was denied.",
			"List them with \"kubectl get csr\". kube-controller-manager's csrapproving must run, and the ClusterRoleBinding of system:certificates.k8s.io:certificatesigningrequests:nodeclient must hold the token's group."},
		{KubeletUnhealthy, "KubeletUnhealthy", Retryable, "The kubelet does not say that it is healthy.",
			"The message holds its answer; see C:\\var\\log\\kubelet\\kubelet.log. Often it cannot reach containerd."},
		{NodeNotRegistered, "NodeNotRegistered", Retryable, "The kubelet has not registered its Node yet.",
			"See C:\\var\\log\\kubelet\\kubelet.log. An admission webhook or quota may refuse the Node."},
		{NodeIdentityRefused, "NodeIdentityRefused", Retryable, "The API server refuses the node's own identity.",
			"The authorizer Node must be on, and its admission plug-in NodeRestriction must allow this node name."},
		{ProviderIDDiffers, "ProviderIDDiffers", Terminal, "The Node's provider ID is not this machine's, and cannot be changed.",
			"Delete the Node and replace the Machine. With an external cloud provider set node.providerID to None."},
		{KubeadmMissing, "KubeadmMissing", Terminal, "join.method is Kubeadm, but kubeadm.exe is not there.",
			"Put it into the image, list it among the artifacts, or use join.method Kubelet, which does not need it."},
		{KubeadmPreflight, "KubeadmPreflight", Retryable, "A preflight check of kubeadm join fails.",
			"The message names it. Correct it, or add its name, with backslashes, to join.kubeadm.ignorePreflightErrors. See C:\\var\\log\\kubeadm\\kubeadm.log."},
		{KubeadmFailed, "KubeadmFailed", Retryable, "kubeadm join failed.",
			"The message holds its last error; see C:\\var\\log\\kubeadm\\kubeadm.log."},
		{KubeadmConfigRefused, "KubeadmConfigRefused", Terminal, "kubeadm does not accept the configuration of the join.",
			"The message names what it refuses; check join.kubeadm, and that kubeadm.exe has the cluster's version."},
		{KubeadmFlagsUnusable, "KubeadmFlagsUnusable", Terminal, "The kubelet flags that kubeadm wrote cannot be taken over.",
			"The message shows them. A value with spaces cannot pass through kubeadm: put it into kubelet.config."},
		{KubeletServiceNotMade, "KubeletServiceNotMade", Retryable, "The kubelet's Windows service cannot be made, changed or looked at.",
			"The message holds the answer of the service control manager."},
		{TokenMissing, "TokenMissing", Terminal, "This machine is no member of the cluster, and its document holds no token any more.",
			"Something removed the node's certificate after the join, or it expired while the machine was off. Replace the Machine."},
	}
}
