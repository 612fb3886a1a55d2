package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Event is a line of a history; tests/sim/history.py describes the format. Only the fields of
// metadata and committed offsets are read.
type Event struct {
	N          int               `json:"n"`
	Type       string            `json:"type"`
	Op         string            `json:"op"`
	ID         *int              `json:"id"`
	Org        string            `json:"org"`
	Principal  string            `json:"principal"`
	Topic      string            `json:"topic"`
	Topics     []string          `json:"topics"`
	Group      string            `json:"group"`
	Txn        string            `json:"txn"`
	Resource   string            `json:"resource"`
	Name       string            `json:"name"`
	Value      json.RawMessage   `json:"value"`
	TopicID    *string           `json:"topic_id"`
	Exists     *bool             `json:"exists"`
	Configs    map[string]string `json:"configs"`
	Partitions json.RawMessage   `json:"partitions"`
	Offsets    [][]any           `json:"offsets"`
	Refused    [][]any           `json:"refused"`
}

// Call is a call with its outcome, which is empty if there was none.
type Call struct {
	Event
	Outcome Event
}

// kept has the ops that this program reads; others have fields of the same names and other types.
var kept = map[string]bool{
	"create_topic": true, "add_partitions": true, "delete_topic": true, "describe_topic": true,
	"list_topics":  true,
	"alter_config": true, "describe_config": true,
	"offset_commit": true, "offset_delete": true, "offset_fetch": true,
	"add_offsets": true, "commit": true, "abort": true,
}

// readHistory returns the calls in their order, and the number of lines.
func readHistory(input io.Reader) ([]*Call, int, error) {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 1<<26)
	var calls []*Call
	byNumber := map[int]*Call{}
	count := 0
	for ; lines.Scan(); count++ {
		var kind struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal(lines.Bytes(), &kind); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", count+1, err)
		}
		if !kept[kind.Op] {
			continue
		}
		var event Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", count+1, err)
		}
		switch {
		case event.Type == "call":
			call := &Call{Event: event}
			calls = append(calls, call)
			byNumber[event.N] = call
		case event.ID != nil && byNumber[*event.ID] != nil:
			byNumber[*event.ID].Outcome = event
		default:
			return nil, 0, fmt.Errorf("line %d: an outcome without a call", count+1)
		}
	}
	return calls, count, lines.Err()
}

func (c *Call) ok() bool     { return c.Outcome.Type == "ok" }
func (c *Call) failed() bool { return c.Outcome.Type == "fail" }

// number is the number of partitions that a call or outcome has; absent ones are "null".
func number(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	return string(raw)
}
