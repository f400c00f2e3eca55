// The reader's own function, which the examples call: fails for "nobody", tells of all others.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

func deliver(payload []byte) error {
	var message struct{ To string }
	if err := json.Unmarshal(payload, &message); err != nil {
		return err
	}
	if message.To == "nobody" {
		return errors.New("mailbox full")
	}
	fmt.Println("delivered to " + message.To)
	return nil
}
