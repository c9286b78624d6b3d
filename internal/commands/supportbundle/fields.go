package supportbundle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// The types in this file are the allow list for responses of a key server and of a cluster. A bundle has only fields
// that these types have.

// redacted is a text in a response. Its URLs are reduced to scheme and host.
type redacted string

// MarshalText returns the text with its URLs reduced to scheme and host.
func (r redacted) MarshalText() ([]byte, error) { return []byte(urltext.Redact(string(r))), nil }

// named converts a response to T, which drops the fields that T does not have. If err is not nil, it returns err.
func named[T any](answer any, err error) (kept T, _ error) {
	if err != nil {
		return kept, err
	}
	raw, err := json.Marshal(answer)
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	return kept, err
}

type ready struct {
	Ready bool `json:"ready"`
	Parts []struct {
		Part           redacted `json:"part"`
		Ready          bool     `json:"ready"`
		Detail         redacted `json:"detail"`
		RetryInSeconds int      `json:"retryInSeconds,omitzero"`
	} `json:"parts"`
	Warnings []redacted `json:"warnings"`
	Code     redacted   `json:"code,omitempty"`
	Detail   redacted   `json:"detail"`
}

type version struct {
	Major   *int     `json:"major,omitzero"`
	Minor   *int     `json:"minor,omitzero"`
	Build   *int     `json:"build,omitzero"`
	Edition *int     `json:"edition,omitzero"`
	Version redacted `json:"version"`
}

// settingNames are the packed attributes of each element of the settings.
var settingNames = map[string][]string{
	"ROOT":              nil,
	"KeyServer":         {"systemId", "serverName", "deployment", "breakGlass", "externalUrl", "trustedProxies"},
	"Listeners":         nil,
	"Listener":          {"name", "address", "tls", "minVersion", "clientCertificates"},
	"IdentityProviders": nil,
	"Tokens":            {"issuer", "audiences", "verifiedBy"},
	"Directory":         {"url", "entryBy"},
	"Certificate":       {"source"},
	"Database":          {"kind"},
	"KeyEncryptionKey":  {"scheme"},
	"Cryptography":      {"fips140", "module"},
	"Peers":             {"timeoutSeconds"},
	"Sessions":          {"idleSeconds", "lifetimeSeconds", "scopedLifetimeSeconds", "most", "mostPerPrincipal", "mostDerived", "mostRequests", "requireProof"},
	"Limits": {
		"messageBytes", "unwindowedListing", "aclTemplates", "templateMembers", "templatedDirectories", "trustedServers",
		"requests", "waiting", "streams", "connections", "connectionsPerAddress", "strangers", "strangersPerAddress", "proofs", "logins",
		"spoolBytes", "spoolBytesPerSession",
	},
}

type setting struct {
	Tag   redacted            `json:"tag"`
	Attrs map[string]redacted `json:"attrs"`
}

type settings struct {
	Nodes      []setting `json:"nodes"`
	Suppressed int       `json:"suppressed"` // number of elements that are removed here or by the key server
}

func namedSettings(answer schema.Configuration, err error) (settings, error) {
	kept := settings{Nodes: []setting{}, Suppressed: answer.Suppressed}
	for _, n := range answer.Nodes {
		names, known := settingNames[n.Tag]
		if !known {
			kept.Suppressed++
			continue
		}
		s := setting{redacted(n.Tag), map[string]redacted{}}
		for _, name := range names {
			if value, has := n.Attrs[name]; has {
				s.Attrs[name] = redacted(value)
			}
		}
		kept.Nodes = append(kept.Nodes, s)
	}
	return kept, err
}

type custody struct {
	KEK struct {
		Scheme         redacted `json:"scheme"`
		Fingerprint    redacted `json:"fingerprint"`
		PreviousNeeded *bool    `json:"previousNeeded"`
	} `json:"kek"`
	DataKeys []struct {
		ID        schema.HexID `json:"id"`
		CreatedAt *time.Time   `json:"createdAt"`
		State     redacted     `json:"state"`
		Wrapped   int64        `json:"wrapped"`
	} `json:"dataKeys"`
	Rewrap struct {
		Done    int64 `json:"done"`
		Total   int64 `json:"total"`
		Refused int64 `json:"refused"`
	} `json:"rewrap"`
}

type authorities struct {
	Authorities []struct {
		CertificateID schema.Base64ID `json:"certificateId"`
		State         redacted        `json:"state"`
		Subject       redacted        `json:"subject"`
		NotBefore     time.Time       `json:"notBefore"`
		NotAfter      time.Time       `json:"notAfter"`
		PreparedAt    time.Time       `json:"preparedAt"`
		ActivatedAt   time.Time       `json:"activatedAt,omitzero"`
		RetiringAt    time.Time       `json:"retiringAt,omitzero"`
	} `json:"authorities"`
}

type certificate struct {
	CertificateID  *schema.Base64ID `json:"certificateId"`
	Subject        redacted         `json:"subject"`
	Issuer         redacted         `json:"issuer"`
	PublicKeyType  redacted         `json:"publicKeyType"`
	SerialNumber   *schema.Base64   `json:"serialNumber"`
	CertHash       *schema.Base64   `json:"certHash"`
	EffectiveDate  *time.Time       `json:"effectiveDate"`
	ExpirationDate *time.Time       `json:"expirationDate"`
	StatusLabel    redacted         `json:"statusLabel"`
}

type trustedCAs struct {
	Count      int `json:"count"`
	TrustedCAs []struct {
		certificate
		RevocationDigest redacted `json:"revocationDigest"`
	} `json:"trustedCAs"`
}

type trustedServers struct {
	TrustedServers []struct {
		SystemID             *schema.SystemID  `json:"systemId"`
		ServerName           redacted          `json:"serverName"`
		Port                 *int              `json:"port"`
		Witness              *bool             `json:"witness,omitzero"`
		TransportPrincipalID *schema.DecimalID `json:"transportPrincipalId"`
		RoleIDs              []schema.HexID    `json:"roleIds"`
		Certificate          *certificate      `json:"certificate"`
	} `json:"trustedServers"`
}

type witness struct {
	Logs []struct {
		Origin     redacted         `json:"origin"`
		SystemID   *schema.SystemID `json:"systemId,omitzero"`
		Size       int64            `json:"size"`
		SeenAt     time.Time        `json:"seenAt,omitzero"`
		Conflict   redacted         `json:"conflict,omitzero"`
		ConflictAt time.Time        `json:"conflictAt,omitzero"`
	} `json:"logs"`
}

// condition is a condition of a Kubernetes object.
type condition struct {
	Type               redacted  `json:"type"`
	Status             redacted  `json:"status"`
	Reason             redacted  `json:"reason,omitzero"`
	Message            redacted  `json:"message,omitzero"`
	ObservedGeneration int64     `json:"observedGeneration,omitzero"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}

// object is an object of this project's API.
type object struct {
	Kind       string      `json:"kind"`
	Namespace  redacted    `json:"namespace,omitempty"`
	Name       redacted    `json:"name"`
	Generation int64       `json:"generation"`
	Conditions []condition `json:"conditions"`
}

type pod struct {
	Name       redacted    `json:"name"`
	Node       redacted    `json:"node"`
	Phase      redacted    `json:"phase"`
	Conditions []condition `json:"conditions"`
	Containers []container `json:"containers"`
}

type container struct {
	Name         redacted `json:"name"`
	Image        redacted `json:"image"`
	ImageID      redacted `json:"imageID"`
	Ready        bool     `json:"ready"`
	Started      *bool    `json:"started,omitzero"`
	RestartCount int      `json:"restartCount"`
	State        state    `json:"state"`
	LastState    state    `json:"lastState"`
}

// state is the state of a container. The message of a terminated container is omitted, because the container writes it
// and it may be a part of its log.
type state struct {
	Waiting *struct {
		Reason  redacted `json:"reason"`
		Message redacted `json:"message,omitzero"`
	} `json:"waiting,omitzero"`
	Running *struct {
		StartedAt time.Time `json:"startedAt"`
	} `json:"running,omitzero"`
	Terminated *struct {
		ExitCode   int       `json:"exitCode"`
		Signal     int       `json:"signal,omitzero"`
		Reason     redacted  `json:"reason"`
		StartedAt  time.Time `json:"startedAt"`
		FinishedAt time.Time `json:"finishedAt"`
	} `json:"terminated,omitzero"`
}

// foundPod has the needed fields of a Pod.
type foundPod struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		NodeName       redacted         `json:"nodeName"`
		InitContainers []foundContainer `json:"initContainers"`
		Containers     []foundContainer `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase                 redacted    `json:"phase"`
		Conditions            []condition `json:"conditions"`
		InitContainerStatuses []container `json:"initContainerStatuses"`
		ContainerStatuses     []container `json:"containerStatuses"`
	} `json:"status"`
}

type foundContainer struct {
	Name string `json:"name"`
}

func namedPods(pods []foundPod) []pod {
	about := make([]pod, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
		about = append(about, pod{redacted(p.Metadata.Name), p.Spec.NodeName, p.Status.Phase, p.Status.Conditions, containers})
	}
	return about
}

// foundEvent has the needed fields of an event.
type foundEvent struct {
	FirstTimestamp metav1.Time      `json:"firstTimestamp"`
	LastTimestamp  metav1.Time      `json:"lastTimestamp"`
	EventTime      metav1.MicroTime `json:"eventTime"`
	Series         *struct {
		Count            int32            `json:"count"`
		LastObservedTime metav1.MicroTime `json:"lastObservedTime"`
	} `json:"series"`
	InvolvedObject struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"involvedObject"`
	ReportingComponent string `json:"reportingComponent"`
	Source             struct {
		Component string `json:"component"`
	} `json:"source"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Count   int32  `json:"count"`
}

type event struct {
	At       metav1.Time `json:"at"`
	Object   redacted    `json:"object"`
	Reporter redacted    `json:"reporter"`
	Reason   redacted    `json:"reason"`
	Message  redacted    `json:"message,omitzero"`
	Count    int32       `json:"count"`
}

// reporters are the components whose event messages are allowed: the manager and Kubernetes.
var reporters = strings.Fields(`keyserver-operator kubelet default-scheduler attachdetach-controller
	cronjob-controller daemonset-controller deployment-controller endpoint-slice-controller horizontal-pod-autoscaler
	job-controller node-controller persistentvolume-controller replicaset-controller statefulset-controller
	taint-eviction-controller`)

// quoting are the reasons of events whose messages may quote a container's output. These messages are omitted.
var quoting = []string{"Unhealthy", "ProbeWarning", "FailedPostStartHook", "FailedPreStopHook"}

func namedEvent(e *foundEvent) event {
	times := int32(1)
	if e.Series != nil {
		times = e.Series.Count
	}
	kept := event{
		At: lastSeen(e), Object: redacted(e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name), Reporter: redacted(e.ReportingComponent),
		Reason: redacted(e.Reason), Count: max(e.Count, times),
	}
	if kept.Reporter == "" {
		kept.Reporter = redacted(e.Source.Component)
	}
	if slices.Contains(reporters, string(kept.Reporter)) && !slices.Contains(quoting, e.Reason) {
		kept.Message = redacted(e.Message)
	}
	return kept
}
