package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Webhooks get all their defaults: the library that calls them dereferences these fields.

// webhookTimeout is the default timeout of a webhook, in seconds.
const webhookTimeout = 10

func defaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		point(&w.FailurePolicy, admissionregistrationv1.Fail)
		point(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		point(&w.NamespaceSelector, metav1.LabelSelector{})
		point(&w.ObjectSelector, metav1.LabelSelector{})
		point(&w.TimeoutSeconds, webhookTimeout)
		point(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultWebhookTarget(&w.ClientConfig, w.Rules)
	}
}

func defaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		point(&w.FailurePolicy, admissionregistrationv1.Fail)
		point(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		point(&w.NamespaceSelector, metav1.LabelSelector{})
		point(&w.ObjectSelector, metav1.LabelSelector{})
		point(&w.TimeoutSeconds, webhookTimeout)
		defaultWebhookTarget(&w.ClientConfig, w.Rules)
	}
}

func defaultWebhookTarget(client *admissionregistrationv1.WebhookClientConfig,
	rules []admissionregistrationv1.RuleWithOperations) {
	if client.Service != nil {
		point(&client.Service.Port, 443)
	}
	for i := range rules {
		point(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}
