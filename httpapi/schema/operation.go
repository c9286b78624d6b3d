package schema

// Operation is one row of the catalogue. Roles grant operations.
type Operation struct {
	ID        HexID  `json:"id"`
	Name      string `json:"name" doc:"For people."`
	Operation string `json:"operation" doc:"The value of an audit entry's operation."`
	Duty      string `json:"duty" doc:"The kind of work; separating duties means giving them to different roles."`
}

// OperationList is the response of GET /api/operations.
type OperationList struct {
	Count      int         `json:"count"`
	Operations []Operation `json:"operations"`
}
