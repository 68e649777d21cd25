// Package announce publishes a device's forecasts on the broker of its site, in the formats of the systems that show
// them. Plain JSON is always published. An Announcer adds the messages by which one system, such as Home Assistant,
// detects the device and its values.
//
// A system is one file with an Announcer and one entry in the table announcers. TestConformance checks all entries.
package announce
