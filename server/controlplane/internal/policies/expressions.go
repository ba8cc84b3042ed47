package policies

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	maxMatchConditions       = 64
	maxAuditAnnotations      = 20
	maxAuditAnnotationLength = 5 * 1024
)

// compiler compiles the expressions of one policy. Variables that were added are known to the expressions after them.
type compiler struct {
	plugincel.Compiler
	hasParams bool
}

// newCompiler returns a compiler. Without variables, expressions don't know the name variables.
func newCompiler(hasParams, hasVariables bool) (compiler, error) {
	environments := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	if !hasVariables {
		return compiler{plugincel.NewCompiler(environments), hasParams}, nil
	}
	composited, err := plugincel.NewCompositedCompiler(environments)
	return compiler{composited, hasParams}, err
}

// check returns the error of an expression that does not compile, or is too costly. known are the names that it may use
// besides params.
func (c compiler) check(expression plugincel.ExpressionAccessor, known plugincel.OptionalVariableDeclarations,
	at *field.Path) field.ErrorList {
	known.HasParams = c.hasParams
	return c.errorOf(c.CompileCELExpression(expression, known, environment.NewExpressions), expression.GetExpression(), at)
}

func (c compiler) errorOf(result plugincel.CompilationResult, expression string, at *field.Path) field.ErrorList {
	switch {
	case result.Error == nil:
		return nil
	case result.Error.Type == cel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, result.Error.Detail)}
	case result.Error.Type == cel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, expression, result.Error.Detail)}
	}
	return field.ErrorList{field.InternalError(at, result.Error)}
}

// variables checks variables and makes them known.
func (c compiler) variables(variables []admissionregistrationv1.Variable, at *field.Path) (errs field.ErrorList) {
	for i, variable := range variables {
		at := at.Index(i)
		switch {
		case strings.TrimSpace(variable.Name) == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !isIdentifier(variable.Name):
			errs = append(errs, field.Invalid(at.Child("name"), variable.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(variable.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		composited := c.Compiler.(*plugincel.CompositedCompiler)
		result := composited.CompileAndStoreVariable(&validating.Variable{Name: variable.Name,
			Expression: variable.Expression},
			plugincel.OptionalVariableDeclarations{HasParams: c.hasParams, HasAuthorizer: true}, environment.NewExpressions)
		errs = append(errs, c.errorOf(result, variable.Expression, at.Child("expression"))...)
	}
	return errs
}

// authorizing are the names for expressions that may ask what the user may do.
var authorizing = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// validations checks the expressions of a ValidatingAdmissionPolicy, and their messages.
func (c compiler) validations(validations []admissionregistrationv1.Validation, at *field.Path) (errs field.ErrorList) {
	for i, v := range validations {
		at := at.Index(i)
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		} else {
			errs = append(errs, c.check(&validating.ValidationCondition{Expression: v.Expression}, authorizing,
				at.Child("expression"))...)
		}
		if v.MessageExpression != "" {
			at := at.Child("messageExpression")
			if strings.TrimSpace(v.MessageExpression) == "" {
				errs = append(errs, field.Invalid(at, v.MessageExpression, "must be non-empty if specified"))
			} else {
				message := &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
				errs = append(errs, c.check(message, plugincel.OptionalVariableDeclarations{}, at)...)
			}
		}
		switch trimmed := strings.TrimSpace(v.Message); {
		case v.Message != "" && trimmed == "":
			errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
		case strings.ContainsAny(trimmed, "\n\r"):
			errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
		}
		if v.Reason != nil && !slices.Contains(reasons, *v.Reason) {
			errs = append(errs, field.NotSupported(at.Child("reason"), *v.Reason, reasons))
		}
	}
	return errs
}

// annotations checks the audit annotations of the policy of a name.
func (c compiler) annotations(annotations []admissionregistrationv1.AuditAnnotation, policy string,
	at *field.Path) (errs field.ErrorList) {
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(at, annotations, fmt.Sprintf("must not have more than %d auditAnnotations",
			maxAuditAnnotations)))
	}
	var keys []string
	for i, annotation := range annotations {
		at := at.Index(i)
		if policy == "" {
			errs = append(errs, field.Invalid(at.Child("key"), annotation.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, qualifiedName(policy+"/"+annotation.Key, at.Child("key"))...)
		}
		switch expression := strings.TrimSpace(annotation.ValueExpression); {
		case expression == "":
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(expression) > maxAuditAnnotationLength:
			errs = append(errs, field.Required(at.Child("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length",
				maxAuditAnnotationLength)))
		default:
			errs = append(errs, c.check(&validating.AuditAnnotationCondition{ValueExpression: expression}, authorizing,
				at.Child("valueExpression"))...)
		}
		if slices.Contains(keys, annotation.Key) {
			errs = append(errs, field.Duplicate(at.Child("key"), annotation.Key))
		}
		keys = append(keys, annotation.Key)
	}
	return errs
}

// matchConditions checks the conditions under which a policy applies. They don't know the policy's variables.
func matchConditions(conditions []admissionregistrationv1.MatchCondition, hasParams bool,
	at *field.Path) (errs field.ErrorList) {
	if len(conditions) == 0 {
		return nil
	}
	compiler, err := newCompiler(hasParams, false)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(at, len(conditions), maxMatchConditions))
	}
	var names []string
	for i, condition := range conditions {
		at := at.Index(i)
		if expression := strings.TrimSpace(condition.Expression); expression == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, compiler.check(&matchconditions.MatchCondition{Expression: expression}, authorizing,
				at.Child("expression"))...)
		}
		if condition.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, qualifiedName(condition.Name, at.Child("name"))...)
		if slices.Contains(names, condition.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), condition.Name))
		}
		names = append(names, condition.Name)
	}
	return errs
}

// mutations checks the expressions of a MutatingAdmissionPolicy.
func (c compiler) mutations(mutations []admissionregistrationv1.Mutation, at *field.Path) (errs field.ErrorList) {
	for i, m := range mutations {
		at := at.Index(i)
		apply, json := at.Child("applyConfiguration"), at.Child("jsonPatch")
		switch m.PatchType {
		case "":
			errs = append(errs, field.Required(at.Child("patchType"), ""))
		case admissionregistrationv1.PatchTypeJSONPatch:
			if m.JSONPatch == nil {
				errs = append(errs, field.Required(json, "must be specified when patchType is JSONPatch"))
			} else {
				expression := strings.TrimSpace(m.JSONPatch.Expression)
				errs = append(errs, c.mutation(&patch.JSONPatchCondition{Expression: expression}, json)...)
			}
			if m.ApplyConfiguration != nil {
				errs = append(errs, field.Invalid(apply, "{applyConfiguration}",
					"must not be specified when patchType is JSONPatch"))
			}
		case admissionregistrationv1.PatchTypeApplyConfiguration:
			if m.ApplyConfiguration == nil {
				errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
			} else {
				expression := strings.TrimSpace(m.ApplyConfiguration.Expression)
				errs = append(errs, c.mutation(&patch.ApplyConfigurationCondition{Expression: expression}, apply)...)
			}
			if m.JSONPatch != nil {
				errs = append(errs, field.Invalid(json, "{jsonPatch}",
					"must not be specified when patchType is ApplyConfiguration"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("patchType"), m.PatchType, patchTypes))
		}
	}
	return errs
}

// mutation checks the expression of one patch.
func (c compiler) mutation(expression plugincel.ExpressionAccessor, at *field.Path) field.ErrorList {
	if expression.GetExpression() == "" {
		return field.ErrorList{field.Required(at.Child("expression"), "")}
	}
	return c.check(expression, plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true},
		at.Child("expression"))
}

func qualifiedName(name string, at *field.Path) (errs field.ErrorList) {
	for _, message := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, message))
	}
	return errs
}

var identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")

// reservedWords are no identifiers of CEL.
var reservedWords = strings.Fields(
	`true false null in as break const continue else for function if import let loop package
	namespace return var void while`)

func isIdentifier(name string) bool {
	return identifier.MatchString(name) && !slices.Contains(reservedWords, name)
}
