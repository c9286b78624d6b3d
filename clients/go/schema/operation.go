package schema

// Operation is one row of the catalogue. Roles grant operations.
type Operation struct {
	ID        HexID  `json:"id"`
	Name      string `json:"name" doc:"Name for people."`
	Operation string `json:"operation" doc:"Key of the operation, as in audit rows."`
	Duty      string `json:"duty" doc:"Duty of the operation. To separate duties, assign them to different roles."`
}

// OperationList is the response of GET /api/operations.
type OperationList struct {
	Count      int         `json:"count"`
	Operations []Operation `json:"operations"`
}
