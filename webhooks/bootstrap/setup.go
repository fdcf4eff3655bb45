package bootstrap

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/capw-dev/cluster-api-provider-windows/api/bootstrap/v1alpha1"
)

// SetupWithManager adds the webhooks to a manager's webhook server.
func SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.WindowsConfig{}).WithValidator(WindowsConfig{}).Complete(); err != nil {
		return fmt.Errorf("creating webhook WindowsConfig: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.WindowsConfigTemplate{}).WithValidator(windowsConfigTemplate()).Complete(); err != nil {
		return fmt.Errorf("creating webhook WindowsConfigTemplate: %w", err)
	}
	return nil
}
